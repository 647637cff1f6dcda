-- The turns of an attempt.

-- name: insert_turns
-- A turn that exists stays as it is. Returns the new ones.
INSERT INTO turns (task_id, epoch, number, kind, body, tokens, microdollars, milliseconds, covers_from, covers_to, at)
SELECT CAST(value ->> 'task' AS bigint), CAST(value ->> 'epoch' AS bigint), CAST(value ->> 'number' AS bigint),
  value ->> 'kind', value ->> 'body', CAST(value ->> 'tokens' AS bigint), CAST(value ->> 'microdollars' AS bigint),
  CAST(value ->> 'milliseconds' AS bigint), CAST(value ->> 'covers_from' AS bigint),
  CAST(value ->> 'covers_to' AS bigint), now_ms()
FROM json_each(CAST(:turns AS text)) WHERE true
ON CONFLICT (task_id, epoch, number) DO NOTHING
RETURNING task_id, epoch, number

-- name: read_turns
SELECT * FROM turns WHERE task_id = :task AND epoch = :epoch AND number > CAST(:after AS bigint) ORDER BY number LIMIT :page

-- name: read_turn
SELECT kind, body FROM turns WHERE task_id = :task AND epoch = :epoch AND number = :number

-- name: set_handover
UPDATE attempts SET handover = :handover
WHERE task_id = :task AND epoch = :epoch AND (handover IS NULL OR handover <> :handover)
RETURNING epoch

-- name: set_merging
-- Behind all that merge or wait for it. An attempt that is in the line keeps its place.
UPDATE attempts SET merges_into = nullif(CAST(:target AS text), ''), merge_place = (
  SELECT 1 + coalesce(max(others.merge_place), 0)
  FROM tasks JOIN attempts AS others ON others.task_id = tasks.id AND others.epoch = tasks.epoch
  WHERE tasks.state = 'claimed'
) WHERE task_id = :task AND epoch = :epoch AND coalesce(merges_into, '') <> CAST(:target AS text)
RETURNING epoch

-- name: merging
-- Who merges into each target or waits for it, in their order. A host without a lease is not waited for.
SELECT attempts.merges_into AS target, attempts.task_id AS task, attempts.epoch, attempts.teammate
FROM tasks JOIN attempts ON attempts.task_id = tasks.id AND attempts.epoch = tasks.epoch
JOIN hosts ON hosts.id = tasks.host_id
WHERE tasks.state = 'claimed' AND attempts.merges_into IS NOT NULL AND hosts.stopped_at IS NULL
  AND hosts.lost_at IS NULL AND hosts.lease_until > now_ms() AND hosts.lease_until <= now_ms() + :lease_max
ORDER BY attempts.merge_place, attempts.task_id
