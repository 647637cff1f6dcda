-- What a task is, and what a review looks at. Before, a task's key began with that.

ALTER TABLE tasks ADD COLUMN kind text NOT NULL DEFAULT 'work';
ALTER TABLE tasks ADD COLUMN reviews bigint;       -- Of a review: the task whose work it looks at,
ALTER TABLE tasks ADD COLUMN reviews_commit text;  -- and the commit, or another name for just that work.
UPDATE tasks SET kind = CASE
  WHEN substr(key, 1, 8) = 'account:' THEN 'budget'
  WHEN substr(key, 1, 13) = 'errand:human:' THEN 'human_message'
  WHEN substr(key, 1, 7) = 'errand:' THEN 'message'
  WHEN parent_id IS NULL THEN 'goal'
  ELSE 'work' END;
-- The key of a review is review:TASK:COMMIT, or review:TASK:NAME.MORE where there are no commits.
-- sqlite only
UPDATE tasks SET kind = 'review', reviews = CAST(substr(key, 8, instr(substr(key, 8), ':') - 1) AS bigint),
  reviews_commit = substr(key || '.', 8 + instr(substr(key, 8), ':'), instr(substr(key || '.', 8 + instr(substr(key, 8), ':')), '.') - 1)
WHERE key GLOB 'review:[0-9]*:*' AND substr(key, 8, instr(substr(key, 8), ':') - 1) NOT GLOB '*[^0-9]*'
  AND instr(substr(key, 8), ':') <= 19;
-- postgres only
UPDATE tasks SET kind = 'review', reviews = CAST(substring(key FROM '^review:([0-9]+):') AS bigint),
  reviews_commit = substring(key FROM '^review:[0-9]+:([^.]*)')
WHERE key ~ '^review:[0-9]{1,18}:';
