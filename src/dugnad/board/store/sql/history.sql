-- Past work, to estimate future work.

-- name: past_attempts
-- Of the newest attempts those that ended, with the sums of their turns, and what came before and with the first reply and
-- after the last turn. Errands are left out unless they are asked for, since they say nothing about work. A lost attempt
-- counts as ended with its last turn, since it may have been taken back much later. The verdict that is kept when the
-- work is done is no turn of the work.
SELECT newest.task_id, newest.epoch, newest.claimed_at, newest.ended_as, newest.role, newest.outcome, newest.kind,
  newest.teammate, CASE WHEN newest.continues IS NULL THEN 1 ELSE 0 END AS fresh, first.tokens AS first_tokens,
  first.microdollars AS first_microdollars, first.at AS first_at,
  (SELECT max(turns.at) FROM turns WHERE turns.task_id = newest.task_id AND turns.epoch = newest.epoch
    AND NOT (turns.kind = 'tool' AND turns.body LIKE '%"verdict"_true,"last"_true}')) AS last_at,
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
  SELECT latest.task_id, latest.epoch, latest.claimed_at, latest.ended_at, latest.ended_as, tasks.role,
    tasks.outcome, tasks.kind, latest.teammate, latest.continues
  FROM (
    SELECT task_id, epoch, claimed_at, ended_at, ended_as, teammate, continues FROM attempts
    WHERE claimed_at >= :since ORDER BY claimed_at DESC LIMIT :most
  ) AS latest JOIN tasks ON tasks.id = latest.task_id
  WHERE latest.ended_at IS NOT NULL AND (tasks.key NOT LIKE 'errand:%' OR CAST(:errands AS integer) = 1)
    AND (CAST(:roots AS text) IS NULL OR tasks.root_id + 0 IN (
      SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:roots AS text))))
) AS newest LEFT JOIN turns AS first ON first.task_id = newest.task_id AND first.epoch = newest.epoch
  AND first.number = (SELECT min(turns.number) FROM turns WHERE turns.task_id = newest.task_id
    AND turns.epoch = newest.epoch AND turns.kind = 'reply')
ORDER BY newest.task_id, newest.epoch

-- name: all_needs
SELECT needs.task_id, needs.needs_id, needs.outcome, needs.state
FROM json_each(CAST(:ids AS text)) AS asked
JOIN needs ON needs.task_id = CAST(asked.value ->> 'id' AS bigint)
ORDER BY needs.task_id, needs.needs_id
