-- The log: one event per change, in the same transaction.

-- name: append_events (sqlite)
INSERT INTO events (seq, at, kind, task_id, root_id, actor, data)
SELECT CAST(value ->> 'seq' AS bigint), CAST(value ->> 'at' AS bigint), value ->> 'kind',
  CAST(value ->> 'task' AS bigint), CAST(value ->> 'root' AS bigint), value ->> 'actor', value ->> 'data'
FROM json_each(CAST(:events AS text))

-- name: append_events (postgres)
-- The row lock on `head` is held until the commit, so numbers have no gaps and readers miss none.
WITH log AS (UPDATE head SET seq = seq + :count RETURNING seq),
added AS (
  INSERT INTO events (seq, at, kind, task_id, root_id, actor, data)
  SELECT log.seq - :count + 1 + new.key, now_ms(), new.value ->> 'kind', (new.value ->> 'task')::bigint,
    (new.value ->> 'root')::bigint, new.value ->> 'actor', new.value ->> 'data'
  FROM log, json_each(CAST(:events AS text)) AS new
)
SELECT pg_notify(CAST(:channel AS text), CAST(:topics AS text)) WHERE CAST(:topics AS text) IS NOT NULL

-- name: read_events
-- On PostgreSQL a commit is seen before it is flushed. What is read here may be told outside, so it is flushed first, or
-- a server that crashed could give its number to another event.
SELECT * FROM events WHERE seq > :after
-- postgres: AND coalesce((SELECT pg_logical_emit_message(true, 'dugnad', '') WHERE pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()), '0/0') IS NOT NULL
ORDER BY seq LIMIT :page

-- name: read_events_of
SELECT * FROM events WHERE task_id = :task AND seq > :after
-- postgres: AND coalesce((SELECT pg_logical_emit_message(true, 'dugnad', '') WHERE pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()), '0/0') IS NOT NULL
ORDER BY seq LIMIT :page

-- name: changed_since
SELECT DISTINCT task_id, root_id, CASE WHEN task_id IS NULL THEN kind END AS kind FROM events WHERE seq > :after

-- name: last_seq
SELECT coalesce((SELECT max(seq) FROM events), (SELECT snapshot_seq FROM head)) AS seq
-- postgres: WHERE coalesce((SELECT pg_logical_emit_message(true, 'dugnad', '') WHERE pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()), '0/0') IS NOT NULL

-- name: snapshot_seq
SELECT snapshot_seq FROM head

-- name: read_snapshot
SELECT entity, id, state FROM snapshot ORDER BY entity, id

-- name: read_snapshot_of
SELECT snapshot.entity, snapshot.id, snapshot.state FROM json_each(CAST(:rows AS text)) AS asked
JOIN snapshot ON snapshot.entity = asked.value ->> 'entity' AND snapshot.id = asked.value ->> 'id'

-- name: dependents
-- All tasks that ever needed these.
SELECT DISTINCT needs.task_id FROM json_each(CAST(:ids AS text)) AS ended
JOIN needs ON needs.needs_id = CAST(ended.value ->> 'id' AS bigint)

-- name: last_seq_before
-- The last event that is older, found by halving: events are in the order of their time, unless a clock was set back.
WITH RECURSIVE halves (low, high) AS (
  SELECT coalesce((SELECT min(seq) FROM events) - 1, 0), coalesce((SELECT max(seq) FROM events), 0)
  UNION ALL
  SELECT
    CASE WHEN (SELECT at FROM events WHERE seq >= (low + high + 1) / 2 ORDER BY seq LIMIT 1) < now_ms() - :age
      THEN (low + high + 1) / 2 ELSE low END,
    CASE WHEN (SELECT at FROM events WHERE seq >= (low + high + 1) / 2 ORDER BY seq LIMIT 1) < now_ms() - :age
      THEN high ELSE (low + high + 1) / 2 - 1 END
  FROM halves WHERE low < high
)
SELECT low AS seq FROM halves WHERE low >= high

-- name: forget_in_snapshot
DELETE FROM snapshot WHERE (entity, id) IN (
  SELECT value ->> 'entity', value ->> 'id' FROM json_each(CAST(:rows AS text))
)

-- name: write_snapshot
INSERT INTO snapshot (entity, id, state)
SELECT value ->> 'entity', value ->> 'id', value ->> 'state' FROM json_each(CAST(:rows AS text))
WHERE value ->> 'state' IS NOT NULL

-- name: set_snapshot_seq
UPDATE head SET snapshot_seq = :seq WHERE snapshot_seq = :expected RETURNING snapshot_seq

-- name: prune_events
DELETE FROM events WHERE seq <= :seq

-- name: prunable
-- What pruning at this age would delete, and its size in characters.
SELECT sum(events) AS events, sum(turns) AS turns, sum(answers) AS answers, sum(hosts) AS hosts,
  CAST(coalesce(sum(size), 0) AS bigint) AS size
FROM (
  SELECT count(*) AS events, 0 AS turns, 0 AS answers, 0 AS hosts, sum(length(data)) AS size
  FROM events WHERE seq <= :seq
  UNION ALL
  SELECT 0, count(*), 0, 0, sum(length(turns.body)) FROM tasks JOIN turns ON turns.task_id = tasks.id
  WHERE tasks.ended_at IS NOT NULL AND tasks.ended_at < now_ms() - :age
    AND tasks.ended_at >= (SELECT pruned_to FROM head) - 86400000
  UNION ALL
  SELECT 0, 0, count(*), 0, sum(length(answer)) FROM calls WHERE at < now_ms() - :repeat_age AND verb <> 'assign'
  UNION ALL
  SELECT 0, 0, 0, count(*), 0 FROM hosts WHERE id IN (
      SELECT id FROM hosts WHERE stopped_at < now_ms() - :age UNION SELECT id FROM hosts WHERE lost_at < now_ms() - :age
    )
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.host_id = hosts.id AND tasks.state = 'claimed')
    AND NOT EXISTS (SELECT 1 FROM teammates WHERE teammates.host_id = hosts.id AND teammates.state = 'seated')
) AS parts

-- name: old_transcripts
-- A page of tasks that ended before, in that order, without those whose transcripts were pruned: an open task is
-- continued from its transcript. A day more is looked at, in case a clock was set back.
SELECT id, ended_at FROM tasks
WHERE ended_at IS NOT NULL AND ended_at < now_ms() - :age AND (ended_at, id) > (:ended_at, :id)
  AND ended_at >= (SELECT pruned_to FROM head) - 86400000
  AND EXISTS (SELECT 1 FROM turns WHERE turns.task_id = tasks.id)
ORDER BY ended_at, id LIMIT :page

-- name: set_pruned_to
UPDATE head SET pruned_to = now_ms() - :age WHERE pruned_to < now_ms() - :age

-- name: prune_turns
-- The state is compared again: the task may have been retried since it was found.
DELETE FROM turns WHERE task_id IN (
  SELECT id FROM tasks WHERE id IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:ids AS text)))
    AND state IN ('done', 'failed', 'cancelled', 'skipped') AND ended_at < now_ms() - :age
) RETURNING task_id

-- name: prune_calls
-- Answers to `assign` stay: the teammate that continues an attempt repeats its calls, perhaps much later.
DELETE FROM calls WHERE key IN (
  SELECT key FROM calls WHERE at < now_ms() - :age AND verb <> 'assign' LIMIT :most
) RETURNING verb

-- name: board_size (sqlite)
SELECT page_count * page_size AS size FROM pragma_page_count(), pragma_page_size()

-- name: board_size (postgres)
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint AS size
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = current_schema() AND pg_class.relkind = 'r'

-- name: lock_key (sqlite)
SELECT 1 WHERE :key IS NULL

-- name: lock_key (postgres)
-- If the same call comes twice at once, the second waits and finds the answer of the first.
SELECT pg_advisory_xact_lock(hashtextextended(CAST(:key AS text), 1))

-- name: call_answer
SELECT verb, answer FROM calls WHERE key = :key

-- name: keep_answer
INSERT INTO calls (key, verb, answer, at) VALUES (:key, :verb, :answer, now_ms())

-- name: read_identity
SELECT id FROM identity
