-- The numbers that an operator watches. None of these statements reads all tasks, all messages or the whole log.

-- name: open_counts
-- Each state is counted in its own index. Tasks that have ended have none: they are what is left of all tasks.
SELECT now_ms() AS now,
  (SELECT count(*) FROM tasks WHERE state = 'ready' AND shelved = 0)
    + (SELECT count(*) FROM tasks WHERE shelved = 1) AS ready,
  (SELECT count(*) FROM tasks WHERE state = 'scheduled') AS scheduled,
  (SELECT count(*) FROM tasks WHERE state = 'blocked') AS blocked,
  (SELECT count(*) FROM tasks WHERE state = 'claimed') AS claimed,
  (SELECT count(*) FROM tasks WHERE state = 'waiting') AS waiting

-- name: oldest_ready
-- Since when each of the first thousand ready tasks has been ready, by its last event that made it so; or, if the log was
-- pruned since, by when it was put. `id + 0`: found in the index of ready work, and not in the order of all tasks.
SELECT min(coalesce((
  SELECT max(at) FROM events WHERE events.task_id = tasks.id
    AND kind IN ('put', 'ready', 'released', 'retrying', 'retried', 'taken_back', 'waiting')
), tasks.put_at)) AS at
FROM (SELECT id FROM tasks WHERE state = 'ready' AND shelved = 0 ORDER BY id + 0 LIMIT 1000) AS first
JOIN tasks ON tasks.id = first.id

-- name: human_requests
-- As `open_requests` counts them, but found in the index of requests: the human may have many other messages.
SELECT count(*) AS n, min(sent_at) AS at FROM messages AS asked
WHERE asked.kind IN ('question', 'plan', 'shutdown') AND asked.recipient || '' = 'human' AND NOT EXISTS (
  SELECT 1 FROM messages AS reply WHERE reply.request = asked.request AND reply.kind IN ('answer', 'plan_reply', 'shutdown_reply')
) AND (asked.kind = 'shutdown' OR asked.task_id IS NULL OR EXISTS (
  SELECT 1 FROM tasks WHERE tasks.id = asked.task_id AND tasks.state = 'waiting' AND tasks.request = asked.request
))

-- name: sum_budgets
-- There are as many rows as goals. All tasks are counted here, too.
SELECT CAST(coalesce(sum(tasks), 0) AS bigint) AS tasks, CAST(coalesce(sum(tokens), 0) AS bigint) AS tokens,
  CAST(coalesce(sum(microdollars), 0) AS bigint) AS microdollars,
  CAST(coalesce(sum(milliseconds), 0) AS bigint) AS milliseconds,
  CAST(coalesce(sum(tokens_reserved), 0) AS bigint) AS tokens_reserved,
  CAST(coalesce(sum(microdollars_reserved), 0) AS bigint) AS microdollars_reserved,
  CAST(coalesce(sum(milliseconds_reserved), 0) AS bigint) AS milliseconds_reserved
FROM budgets

-- name: held_roots
-- Roots at a cap that still have open tasks.
SELECT root_id FROM budgets WHERE held IS NOT NULL
  AND EXISTS (SELECT 1 FROM tasks WHERE tasks.root_id = budgets.root_id AND tasks.ended_at IS NULL)
ORDER BY root_id LIMIT 1000
