-- Which teammates somebody asked for by name. The others joined because the runtime let the team grow.

ALTER TABLE teammates ADD COLUMN named integer NOT NULL DEFAULT 0;  -- 1: a person, a lead or a project named it.
