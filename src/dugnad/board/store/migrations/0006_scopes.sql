-- A host may work under some roots only: a run with a goal must not spend on what else is on the board.

ALTER TABLE hosts ADD COLUMN scope text;  -- The roots its teammates may claim under, as JSON; NULL: all.
