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
