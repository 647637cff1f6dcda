-- Past work, to estimate future work.

-- name: past_attempts
-- The ended attempts of the newest tasks, with the sums of their turns. Errands are left out, since they say nothing about
-- work. A lost attempt counts as ended with its last turn, since it may have been taken back much later.
SELECT newest.task_id, newest.epoch, newest.claimed_at, newest.ended_as, newest.role, newest.outcome,
  CASE WHEN newest.ended_as = 'lost' THEN coalesce((SELECT max(turns.at) FROM turns
    WHERE turns.task_id = newest.task_id AND turns.epoch = newest.epoch), newest.claimed_at)
    ELSE newest.ended_at END AS ended_at,
  (SELECT count(*) FROM turns WHERE turns.task_id = newest.task_id AND turns.epoch = newest.epoch
    AND turns.kind = 'reply') AS replies,
  (SELECT CAST(coalesce(sum(turns.tokens), 0) AS bigint) FROM turns
    WHERE turns.task_id = newest.task_id AND turns.epoch = newest.epoch) AS tokens,
  (SELECT CAST(coalesce(sum(turns.microdollars), 0) AS bigint) FROM turns
    WHERE turns.task_id = newest.task_id AND turns.epoch = newest.epoch) AS microdollars
FROM (
  SELECT attempts.task_id, attempts.epoch, attempts.claimed_at, attempts.ended_at, attempts.ended_as, tasks.role,
    tasks.outcome
  FROM attempts JOIN tasks ON tasks.id = attempts.task_id
  WHERE attempts.ended_at IS NOT NULL AND tasks.key NOT LIKE 'errand:%'
  ORDER BY attempts.task_id DESC, attempts.epoch DESC LIMIT :most
) AS newest
ORDER BY newest.task_id, newest.epoch

-- name: open_needs
SELECT task_id, needs_id, outcome FROM needs WHERE state = 'open' ORDER BY task_id, needs_id
