-- Whole tables, to compare them with the state that the log replays to.

-- name: dump_tasks
SELECT * FROM tasks ORDER BY id

-- name: dump_needs
SELECT * FROM needs ORDER BY task_id, needs_id

-- name: dump_attempts
SELECT * FROM attempts ORDER BY task_id, epoch

-- name: dump_budgets
SELECT * FROM budgets ORDER BY root_id

-- name: dump_reservations
SELECT * FROM reservations ORDER BY key

-- name: dump_cooldowns
SELECT * FROM cooldowns ORDER BY key

-- name: dump_messages
SELECT * FROM messages ORDER BY id

-- name: dump_notes
SELECT * FROM notes ORDER BY id

-- name: dump_teammates
SELECT * FROM teammates WHERE state <> 'human' ORDER BY name

-- name: dump_hosts
SELECT * FROM hosts ORDER BY id
