-- The account of a root. Every change locks its row.

-- name: insert_budgets
INSERT INTO budgets (root_id, tasks_max, tokens_max, microdollars_max, milliseconds_max, tasks)
SELECT CAST(value ->> 'root' AS bigint), CAST(value ->> 'tasks_max' AS bigint),
  CAST(value ->> 'tokens_max' AS bigint), CAST(value ->> 'microdollars_max' AS bigint),
  CAST(value ->> 'milliseconds_max' AS bigint), 0
FROM json_each(CAST(:budgets AS text))

-- name: open_budget
-- A budget that several tasks share. No task has its number, which is below zero. If another process has just taken it,
-- no row is returned, and the caller starts over.
INSERT INTO budgets (root_id, tasks_max, tokens_max, microdollars_max, milliseconds_max, tasks)
SELECT CASE WHEN min(root_id) < 0 THEN min(root_id) ELSE 0 END - 1, CAST(:tasks_max AS bigint),
  CAST(:tokens_max AS bigint), CAST(:microdollars_max AS bigint), CAST(:milliseconds_max AS bigint), 0
FROM budgets WHERE true
ON CONFLICT (root_id) DO NOTHING
RETURNING root_id

-- name: hold_budgets
-- In the order of the roots, so that two batches cannot wait for each other.
SELECT * FROM budgets WHERE root_id IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:ids AS text)))
-- postgres: ORDER BY root_id FOR UPDATE

-- name: read_budget
SELECT * FROM budgets WHERE root_id = :root

-- name: count_tasks_of_roots
UPDATE budgets SET tasks = tasks + new.n
FROM (
  SELECT CAST(value ->> 'root' AS bigint) AS new_root, CAST(value ->> 'n' AS bigint) AS n
  FROM json_each(CAST(:roots AS text))
) AS new
WHERE budgets.root_id = new.new_root

-- name: charge_runs
UPDATE budgets SET runs = runs + charged.n
FROM (
  SELECT CAST(value ->> 'root' AS bigint) AS charged_root, CAST(value ->> 'n' AS bigint) AS n
  FROM json_each(CAST(:roots AS text))
) AS charged
WHERE budgets.root_id = charged.charged_root

-- name: hold_root
UPDATE budgets SET held = :held WHERE root_id = :root

-- name: move_amounts
-- Add to the spent and reserved amounts; what is added may be negative.
UPDATE budgets SET
  tokens = tokens + more_tokens, microdollars = microdollars + more_microdollars,
  milliseconds = milliseconds + more_milliseconds, tokens_reserved = tokens_reserved + more_tokens_reserved,
  microdollars_reserved = microdollars_reserved + more_microdollars_reserved,
  milliseconds_reserved = milliseconds_reserved + more_milliseconds_reserved
FROM (
  SELECT CAST(value ->> 'root' AS bigint) AS moved_root,
    CAST(value ->> 'tokens' AS bigint) AS more_tokens, CAST(value ->> 'microdollars' AS bigint) AS more_microdollars,
    CAST(value ->> 'milliseconds' AS bigint) AS more_milliseconds,
    CAST(value ->> 'tokens_reserved' AS bigint) AS more_tokens_reserved,
    CAST(value ->> 'microdollars_reserved' AS bigint) AS more_microdollars_reserved,
    CAST(value ->> 'milliseconds_reserved' AS bigint) AS more_milliseconds_reserved
  FROM json_each(CAST(:roots AS text))
) AS moved
WHERE budgets.root_id = moved_root
RETURNING root_id, parked, held

-- name: park_task
UPDATE budgets SET parked = parked + 1 WHERE root_id = :root

-- name: none_parked
UPDATE budgets SET parked = 0 WHERE root_id = :root

-- name: set_caps
UPDATE budgets SET tasks_max = :tasks_max, tokens_max = :tokens_max, microdollars_max = :microdollars_max,
  milliseconds_max = :milliseconds_max, held = NULL, parked = 0
WHERE root_id = :root

-- name: unshelve_tasks
UPDATE tasks SET shelved = 0 WHERE root_id = :root AND shelved = 1 RETURNING lane, not_for, state

-- name: unpark_tasks
-- Make the tasks ready that wait for this budget.
UPDATE tasks SET state = 'ready', waiting_for = NULL
WHERE root_id = :root AND state = 'waiting' AND waiting_for = 'budget'
RETURNING id, lane, not_for

-- name: insert_reservations
INSERT INTO reservations (key, root_id, task_id, epoch, tokens, microdollars, milliseconds, state, pace, reserved_at)
SELECT value ->> 'key', CAST(value ->> 'root' AS bigint), CAST(value ->> 'task' AS bigint),
  CAST(value ->> 'epoch' AS bigint), CAST(value ->> 'tokens' AS bigint), CAST(value ->> 'microdollars' AS bigint),
  CAST(value ->> 'milliseconds' AS bigint), 'open', value ->> 'pace', now_ms()
FROM json_each(CAST(:reservations AS text)) WHERE true
RETURNING key

-- name: reservations_by_key
SELECT * FROM reservations WHERE key IN (SELECT value ->> 'key' FROM json_each(CAST(:keys AS text)))

-- name: close_reservations
UPDATE reservations SET state = given.state, tokens_used = given.tokens
FROM (
  SELECT value ->> 'key' AS given_key, value ->> 'state' AS state, CAST(value ->> 'tokens' AS bigint) AS tokens
  FROM json_each(CAST(:reservations AS text))
) AS given
WHERE reservations.key = given.given_key

-- name: open_reservations_of
SELECT * FROM reservations
WHERE state = 'open' AND task_id IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:ids AS text)))
ORDER BY key

-- name: newest_budgets
-- Of goals, whose numbers grow; then those that several tasks share, whose numbers fall.
SELECT * FROM (
  SELECT * FROM (SELECT * FROM budgets WHERE root_id > 0 ORDER BY root_id DESC LIMIT :page) AS of_goals
  UNION ALL
  SELECT * FROM (SELECT * FROM budgets WHERE root_id < 0 ORDER BY root_id LIMIT :page) AS shared
) AS found ORDER BY CASE WHEN root_id > 0 THEN 0 ELSE 1 END, abs(root_id) DESC LIMIT :page
