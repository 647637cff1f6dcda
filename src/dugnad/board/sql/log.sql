-- The log: one event per change, in the same transaction.

-- name: append_events (sqlite)
INSERT INTO events (seq, at, kind, task_id, root_id, actor, data)
SELECT (SELECT max(seq) FROM (SELECT max(seq) AS seq FROM events UNION ALL SELECT snapshot_seq FROM head)) + 1 + key,
  now_ms(), value ->> 'kind', value ->> 'task', value ->> 'root', value ->> 'actor', value ->> 'data'
FROM json_each(:events)

-- name: append_events (postgres)
-- The row lock on `head` is held until the commit, so numbers have no gaps and readers miss none.
WITH log AS (UPDATE head SET seq = seq + :count RETURNING seq),
added AS (
  INSERT INTO events (seq, at, kind, task_id, root_id, actor, data)
  SELECT log.seq - :count + 1 + new.key, now_ms(), new.value ->> 'kind', (new.value ->> 'task')::bigint,
    (new.value ->> 'root')::bigint, new.value ->> 'actor', new.value ->> 'data'
  FROM log, json_each(CAST(:events AS text)) AS new
  RETURNING seq
)
SELECT pg_notify(CAST(:channel AS text), CAST(:topics AS text)) FROM (SELECT max(seq) FROM added) AS written

-- name: read_events
SELECT * FROM events
WHERE seq > :after AND (CAST(:task AS bigint) IS NULL OR task_id = :task)
ORDER BY seq LIMIT :page

-- name: changed_since
SELECT DISTINCT task_id, root_id, CASE WHEN task_id IS NULL THEN kind END AS kind FROM events WHERE seq > :after

-- name: last_seq
SELECT coalesce((SELECT max(seq) FROM events), (SELECT snapshot_seq FROM head)) AS seq

-- name: snapshot_seq
SELECT snapshot_seq FROM head

-- name: read_snapshot
SELECT entity, id, state FROM snapshot ORDER BY entity, id

-- name: last_seq_before
SELECT max(seq) AS seq FROM events WHERE at < now_ms() - :age

-- name: clear_snapshot
DELETE FROM snapshot

-- name: write_snapshot
INSERT INTO snapshot (entity, id, state)
SELECT value ->> 'entity', value ->> 'id', value ->> 'state' FROM json_each(CAST(:rows AS text))

-- name: set_snapshot_seq
UPDATE head SET snapshot_seq = :seq WHERE snapshot_seq = :expected RETURNING snapshot_seq

-- name: prune_events
DELETE FROM events WHERE seq <= :seq

-- name: prune_turns
DELETE FROM turns WHERE task_id IN (
  SELECT id FROM tasks WHERE state IN ('done', 'failed', 'cancelled', 'skipped') AND ended_at < now_ms() - :age
)

-- name: prune_calls
DELETE FROM calls WHERE at < now_ms() - :age

-- name: lock_key (sqlite)
SELECT 1 WHERE :key IS NULL

-- name: lock_key (postgres)
-- The same call twice at once: the second waits, and finds the answer of the first.
SELECT pg_advisory_xact_lock(hashtextextended(CAST(:key AS text), 1))

-- name: call_answer
SELECT verb, answer FROM calls WHERE key = :key

-- name: keep_answer
INSERT INTO calls (key, verb, answer, at) VALUES (:key, :verb, :answer, now_ms())

-- name: read_identity
SELECT id FROM identity
