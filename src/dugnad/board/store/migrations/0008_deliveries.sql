-- Where the work of a task that is done went. Results of before say it in brackets, at the end of their text.

ALTER TABLE tasks ADD COLUMN merged_into text;  -- The branch that its work was merged into,
ALTER TABLE tasks ADD COLUMN merged_as text;    -- and the commit there; NULL: the branch had all of it before.
ALTER TABLE tasks ADD COLUMN files_in text;     -- The folder with its files, where nothing is merged.
ALTER TABLE tasks ADD COLUMN triggers text;     -- The files it changes that make other programs run something.
