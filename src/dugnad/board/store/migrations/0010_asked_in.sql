-- Which message of a person a task follows from, so that its teammate knows the person's words.

ALTER TABLE tasks ADD COLUMN asked_in bigint;  -- The task that answers the message; NULL: it follows from none.
CREATE INDEX tasks_asked_in ON tasks (asked_in) WHERE asked_in IS NOT NULL AND ended_at IS NULL;
