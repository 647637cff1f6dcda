-- The numbers that an operator watches. None of these statements reads all tasks, all messages or the whole log.

-- name: oldest_ready
-- Since when each of the first thousand ready tasks has been ready, by its last event that made it so; or, if the log was
-- pruned since, by when it was put.
SELECT now_ms() AS now, min(coalesce((
  SELECT max(at) FROM events WHERE events.task_id = tasks.id
    AND kind IN ('put', 'ready', 'released', 'retrying', 'retried', 'taken_back', 'waiting')
), tasks.put_at)) AS at
FROM (SELECT id FROM tasks WHERE state || '' = 'ready' AND shelved = 0 ORDER BY id + 0 LIMIT 1000) AS first
JOIN tasks ON tasks.id = first.id

-- name: human_requests
-- How many `open_requests` the human has, and since when.
SELECT count(*) AS n, min(sent_at) AS at FROM messages AS asked
WHERE asked.id IN (
  SELECT own.id FROM tasks JOIN messages AS own ON own.request = tasks.request AND own.kind IN ('question', 'plan', 'shutdown')
  WHERE tasks.state = 'waiting' AND tasks.request IS NOT NULL AND own.task_id = tasks.id AND own.recipient || '' = 'human'
  UNION SELECT id FROM messages WHERE recipient = 'human' AND kind = 'shutdown'
  UNION SELECT id FROM messages WHERE recipient = 'human' AND task_id IS NULL AND kind IN ('question', 'plan')
) AND NOT EXISTS (
  SELECT 1 FROM messages AS reply WHERE reply.request = asked.request AND reply.kind IN ('answer', 'plan_reply', 'shutdown_reply')
)

-- name: sum_budgets
-- There are as many rows as goals.
SELECT CAST(coalesce(sum(tokens), 0) AS bigint) AS tokens,
  CAST(coalesce(sum(microdollars), 0) AS bigint) AS microdollars,
  CAST(coalesce(sum(milliseconds), 0) AS bigint) AS milliseconds,
  CAST(coalesce(sum(tokens_reserved), 0) AS bigint) AS tokens_reserved,
  CAST(coalesce(sum(microdollars_reserved), 0) AS bigint) AS microdollars_reserved,
  CAST(coalesce(sum(milliseconds_reserved), 0) AS bigint) AS milliseconds_reserved
FROM budgets

-- name: held_roots
-- Roots at a cap that still have open tasks.
SELECT root_id FROM budgets WHERE held IS NOT NULL AND EXISTS (
  SELECT 1 FROM tasks WHERE tasks.root_id = budgets.root_id
    AND tasks.state IN ('ready', 'scheduled', 'blocked', 'claimed', 'waiting')
)
ORDER BY root_id LIMIT 1000
