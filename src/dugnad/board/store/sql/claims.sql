-- Claiming, settling and taking back.

-- name: promote_due
UPDATE tasks SET state = 'ready', due_at = NULL WHERE id IN (
  SELECT id FROM tasks WHERE state = 'scheduled' AND due_at <= now_ms() ORDER BY due_at LIMIT 1000
  -- postgres: FOR UPDATE SKIP LOCKED
) RETURNING id, root_id, lane, not_for

-- name: claimants
-- The teammates that ask: where each is seated, and whether the host is alive by the database's clock.
SELECT teammates.name, teammates.roles, teammates.lead, teammates.keep_context, teammates.state, teammates.host_id,
  hosts.id AS known_host, hosts.scope,
  CASE WHEN hosts.stopped_at IS NULL AND hosts.lost_at IS NULL AND hosts.lease_until > now_ms()
    AND hosts.lease_until <= now_ms() + :lease_max THEN 1 ELSE 0 END AS alive
FROM json_each(CAST(:claimants AS text)) AS asked
JOIN teammates ON teammates.name = asked.value ->> 'teammate'
LEFT JOIN hosts ON hosts.id = asked.value ->> 'host'

-- name: claim_candidates (sqlite)
-- The first few tasks of each lane, read from the index of ready work, without those that are not for the asker.
SELECT tasks.id, tasks.lane, tasks.priority, tasks.chain, tasks.root_id, tasks.not_for, tasks.continues
FROM json_each(:lanes) AS asked
JOIN tasks ON tasks.id IN (
  SELECT id FROM tasks WHERE state = 'ready' AND shelved = 0 AND lane = asked.value ->> 'lane'
    AND (not_for IS NULL OR replace(',' || not_for || ',', ',' || :asker || ',', '') = ',' || not_for || ',')
  ORDER BY priority DESC, chain DESC, id LIMIT :count
)

-- name: claim_candidates (postgres)
SELECT best.id, best.lane, best.priority, best.chain, best.root_id, best.not_for, best.continues
FROM json_each(CAST(:lanes AS text)) AS asked
CROSS JOIN LATERAL (
  SELECT id, lane, priority, chain, root_id, not_for, continues FROM tasks
  WHERE state = 'ready' AND shelved = 0 AND lane = asked.value ->> 'lane'
    AND (not_for IS NULL OR replace(',' || not_for || ',', ',' || CAST(:asker AS text) || ',', '') = ',' || not_for || ',')
  ORDER BY priority DESC, chain DESC, id LIMIT :count FOR UPDATE SKIP LOCKED
) AS best

-- name: claim_candidates_under (sqlite)
-- The same under some roots only: the first few tasks of each lane under each of them.
SELECT tasks.id, tasks.lane, tasks.priority, tasks.chain, tasks.root_id, tasks.not_for, tasks.continues
FROM json_each(:lanes) AS asked, json_each(:roots) AS scope
JOIN tasks ON tasks.id IN (
  SELECT id FROM tasks WHERE root_id = CAST(scope.value ->> 'id' AS bigint) AND lane = asked.value ->> 'lane'
    AND state = 'ready' AND shelved * 1 = 0 AND (not_for IS NULL OR replace(',' || not_for || ',', ',' || :asker || ',', '') = ',' || not_for || ',')
  ORDER BY priority DESC, chain DESC, id LIMIT :count
)

-- name: claim_candidates_under (postgres)
SELECT best.id, best.lane, best.priority, best.chain, best.root_id, best.not_for, best.continues
FROM json_each(CAST(:lanes AS text)) AS asked, json_each(CAST(:roots AS text)) AS scope
CROSS JOIN LATERAL (
  SELECT id, lane, priority, chain, root_id, not_for, continues FROM tasks
  WHERE root_id = CAST(scope.value ->> 'id' AS bigint) AND lane = asked.value ->> 'lane'
    AND state = 'ready' AND shelved * 1 = 0 AND (not_for IS NULL OR replace(',' || not_for || ',', ',' || CAST(:asker AS text) || ',', '') = ',' || not_for || ',')
  ORDER BY priority DESC, chain DESC, id LIMIT :count FOR UPDATE SKIP LOCKED
) AS best

-- name: shelve_tasks
-- Take ready tasks of a held root out of the index of ready work, until the cap is raised.
UPDATE tasks SET shelved = 1
WHERE id IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:tasks AS text))) AND state = 'ready'

-- name: shelve_lane (sqlite)
-- The same for the front of a whole lane, where many such tasks may be. Only for roots whose accounts are locked: the cap
-- of another root may be raised at this moment. A task that continues a charged run stays if only runs are spent.
WITH front AS MATERIALIZED (
  SELECT id AS front_id, root_id AS front_root, continues AS front_continues FROM tasks
  WHERE state = 'ready' AND shelved = 0 AND lane = :lane
  ORDER BY priority DESC, chain DESC, id LIMIT :count
)
UPDATE tasks SET shelved = 1 FROM front
WHERE tasks.id = front_id
  AND front_root IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:roots AS text)))
  AND (front_continues IS NULL OR (SELECT held FROM budgets WHERE root_id = front_root) <> 'tasks')

-- name: shelve_lane (postgres)
-- Rows that other transactions have locked are left out: those may wait for the account that this one has locked.
WITH front AS MATERIALIZED (
  SELECT id AS front_id, root_id AS front_root, continues AS front_continues FROM tasks
  WHERE state = 'ready' AND shelved = 0 AND lane = :lane
  ORDER BY priority DESC, chain DESC, id LIMIT :count
), free AS MATERIALIZED (
  SELECT tasks.id AS free_id FROM front JOIN tasks ON tasks.id = front_id
  WHERE front_root IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:roots AS text)))
    AND (front_continues IS NULL OR (SELECT held FROM budgets WHERE root_id = front_root) <> 'tasks')
  FOR UPDATE OF tasks SKIP LOCKED
)
UPDATE tasks SET shelved = CASE WHEN state = 'ready' THEN 1 ELSE shelved END FROM free WHERE tasks.id = free_id

-- name: claim_tasks
UPDATE tasks SET state = 'claimed', epoch = epoch + 1, claims = claims + 1, shelved = 0, due_at = NULL,
  teammate = taken.taker, host_id = taken.taker_host, reason = NULL
FROM (
  SELECT CAST(value ->> 'id' AS bigint) AS taken_id, value ->> 'teammate' AS taker, value ->> 'host' AS taker_host
  FROM json_each(CAST(:tasks AS text))
) AS taken
WHERE tasks.id = taken.taken_id AND state = 'ready'
RETURNING *

-- name: open_attempts
-- The first attempt at a task goes on from the last task of its conversation that is done. A later attempt begins anew, so
-- that a conversation that cannot go on does not fail a task for good.
WITH new AS MATERIALIZED (
  SELECT CAST(value ->> 'task' AS bigint) AS task, CAST(value ->> 'epoch' AS bigint) AS epoch, value ->> 'key' AS claim_key,
    value ->> 'teammate' AS teammate, value ->> 'host' AS host, CAST(value ->> 'continues' AS bigint) AS continues,
    value ->> 'context' AS context,
    (SELECT count(*) FROM attempts WHERE task_id = CAST(value ->> 'task' AS bigint)) AS earlier
  FROM json_each(CAST(:attempts AS text))
)
INSERT INTO attempts (task_id, epoch, number, claim_key, teammate, host_id, continues, context, follows, claimed_at)
SELECT task, epoch, earlier + 1, claim_key, teammate, host, continues, context,
  CASE WHEN context IS NOT NULL AND earlier = 0 THEN (
    SELECT before.task_id FROM attempts AS before
    WHERE before.context = new.context AND before.ended_as = 'done'
    ORDER BY before.claimed_at DESC, before.task_id DESC LIMIT 1
  ) END, now_ms()
FROM new WHERE true
RETURNING task_id, epoch, number, follows

-- name: attempts_by_key
SELECT task_id, epoch, number, claim_key, teammate, host_id, continues, context, follows FROM attempts
WHERE claim_key IN (SELECT value ->> 'key' FROM json_each(CAST(:keys AS text)))

-- name: settle_tasks
-- With `own_lane`, only its last holder can continue it.
UPDATE tasks SET lane = coalesce(given.own_lane, CASE WHEN assignee IS NULL THEN coalesce(role, '') ELSE '@' || assignee END),
  state = given.state, epoch = epoch + 1, tries = tries + given.tried, claims = claims - given.back,
  outcome = given.outcome, result = given.result, merged_into = given.merged_into, merged_as = given.merged_as,
  files_in = given.files_in, triggers = given.triggers, teammate = coalesce(given.author, teammate),
  reason = given.reason, continues = given.continues,
  waiting_for = given.waiting_for, request = given.request, open_needs = given.open_needs,
  due_at = CASE WHEN given.delay > 0 THEN now_ms() + given.delay END,
  ended_at = CASE WHEN given.state IN ('done', 'failed') THEN now_ms() END
FROM (
  SELECT CAST(value ->> 'id' AS bigint) AS given_id, value ->> 'state' AS state,
    CAST(value ->> 'tried' AS bigint) AS tried, CAST(value ->> 'back' AS bigint) AS back, value ->> 'outcome' AS outcome, value ->> 'result' AS result,
    value ->> 'merged_into' AS merged_into, value ->> 'merged_as' AS merged_as, value ->> 'files_in' AS files_in,
    value ->> 'triggers' AS triggers, value ->> 'by' AS author,
    value ->> 'reason' AS reason, CAST(value ->> 'continues' AS bigint) AS continues,
    value ->> 'waiting_for' AS waiting_for, value ->> 'request' AS request, value ->> 'lane' AS own_lane,
    CAST(value ->> 'open_needs' AS bigint) AS open_needs, CAST(value ->> 'delay' AS bigint) AS delay
  FROM json_each(CAST(:tasks AS text))
) AS given
WHERE tasks.id = given.given_id
RETURNING id, due_at

-- name: close_attempts
UPDATE attempts SET ended_at = now_ms(), ended_as = given.ended_as, settled_as = given.settled_as,
  handover = coalesce(given.handover, attempts.handover), reason = given.reason
FROM (
  SELECT CAST(value ->> 'task' AS bigint) AS given_task, CAST(value ->> 'epoch' AS bigint) AS given_epoch,
    value ->> 'ended_as' AS ended_as, value ->> 'settled_as' AS settled_as, value ->> 'handover' AS handover,
    value ->> 'reason' AS reason
  FROM json_each(CAST(:attempts AS text))
) AS given
WHERE attempts.task_id = given.given_task AND attempts.epoch = given.given_epoch
RETURNING task_id

-- name: attempts_settled
SELECT attempts.task_id, attempts.epoch, attempts.settled_as, attempts.ended_as
FROM json_each(CAST(:claims AS text)) AS asked
JOIN attempts ON attempts.task_id = CAST(asked.value ->> 'task' AS bigint)
  AND attempts.epoch = CAST(asked.value ->> 'epoch' AS bigint)

-- name: hold_claims
-- Claims that look lost: their host stopped, or was declared lost. A host that sends a heartbeat at this moment was not.
-- One step in the index for each host that has claims, however many it has.
WITH RECURSIVE holders (host) AS (
  SELECT min(host_id) FROM tasks WHERE state = 'claimed'
  UNION ALL
  SELECT (SELECT min(host_id) FROM tasks WHERE state = 'claimed' AND host_id > holders.host)
  FROM holders WHERE holders.host IS NOT NULL
)
SELECT tasks.id FROM holders LEFT JOIN hosts ON hosts.id = holders.host
JOIN tasks ON tasks.host_id = holders.host AND tasks.state = 'claimed'
WHERE hosts.id IS NULL OR hosts.stopped_at IS NOT NULL OR hosts.lost_at IS NOT NULL
ORDER BY tasks.id LIMIT :count
-- postgres: FOR UPDATE OF tasks SKIP LOCKED

-- name: lost_claims
-- Which of these claims are lost, read again now that the rows are locked: between the first read and the lock, another
-- process may have taken one back, and a living host may have claimed it.
SELECT tasks.id, tasks.root_id, tasks.lane, tasks.not_for, tasks.epoch, tasks.claims, tasks.tries, tasks.teammate,
  tasks.host_id, tasks.kind, tasks.asked_in
FROM json_each(CAST(:ids AS text)) AS held
JOIN tasks ON tasks.id = CAST(held.value ->> 'id' AS bigint)
LEFT JOIN hosts ON hosts.id = tasks.host_id
WHERE tasks.state = 'claimed' AND (hosts.id IS NULL OR hosts.stopped_at IS NOT NULL OR hosts.lost_at IS NOT NULL)
ORDER BY tasks.id

-- name: take_back_tasks
-- The epoch stays, so that the late holder may finish until another teammate claims the task. If it fails, the epoch grows.
UPDATE tasks SET state = given.state, tries = tries + 1, continues = tasks.epoch, reason = given.reason,
  due_at = CASE WHEN given.delay > 0 THEN now_ms() + given.delay END,
  ended_at = CASE WHEN given.state = 'failed' THEN now_ms() END,
  epoch = CASE WHEN given.state = 'failed' THEN epoch + 1 ELSE epoch END
FROM (
  SELECT CAST(value ->> 'id' AS bigint) AS given_id, value ->> 'state' AS state, value ->> 'reason' AS reason,
    CAST(value ->> 'delay' AS bigint) AS delay
  FROM json_each(CAST(:tasks AS text))
) AS given
WHERE tasks.id = given.given_id
RETURNING id, due_at

-- name: claims_of_host
SELECT id, epoch, teammate FROM tasks WHERE host_id = :host AND state = 'claimed' ORDER BY id

-- name: attempts_of
SELECT * FROM attempts WHERE task_id = :task ORDER BY epoch

-- name: ready_counts
-- The number of ready tasks in each lane, counted up to a limit, with one step in the index for each lane. Tasks that are
-- `not_for` a teammate are counted separately; an assigned task is not, since its assignee is another teammate. A lane
-- with tasks that are due but not yet ready has one more.
WITH RECURSIVE found (lane) AS (
  SELECT min(lane) FROM tasks WHERE state = 'ready' AND shelved = 0
  UNION ALL
  SELECT (SELECT min(lane) FROM tasks WHERE state = 'ready' AND shelved = 0 AND lane > found.lane)
  FROM found WHERE found.lane IS NOT NULL
)
SELECT lane, (
  SELECT count(*) FROM (
    SELECT 1 FROM tasks WHERE state = 'ready' AND shelved = 0 AND tasks.lane = found.lane AND not_for IS NULL
    LIMIT :most
  ) AS few
) AS n FROM found WHERE lane IS NOT NULL
UNION ALL
SELECT CASE WHEN lane LIKE '@%' THEN lane ELSE lane || '!' || not_for END, count(*)
FROM tasks WHERE state = 'ready' AND shelved = 0 AND not_for > '' GROUP BY 1
UNION ALL
SELECT DISTINCT lane, 1 FROM tasks WHERE state = 'scheduled' AND due_at <= now_ms()

-- name: ready_counts_under
-- The same under some roots only, with one step in the index for each lane of a root.
WITH RECURSIVE found (root, lane) AS (
  SELECT CAST(value ->> 'id' AS bigint), (
    SELECT min(lane) FROM tasks
    WHERE root_id = CAST(value ->> 'id' AS bigint) AND state = 'ready' AND shelved * 1 = 0
  ) FROM json_each(CAST(:roots AS text))
  UNION ALL
  SELECT found.root, (
    SELECT min(lane) FROM tasks
    WHERE root_id = found.root AND state = 'ready' AND shelved * 1 = 0 AND lane > found.lane
  ) FROM found WHERE found.lane IS NOT NULL
)
SELECT lane, (
  SELECT count(*) FROM (
    SELECT 1 FROM tasks
    WHERE root_id = found.root AND tasks.lane = found.lane AND state = 'ready' AND shelved * 1 = 0 AND not_for IS NULL
    LIMIT :most
  ) AS few
) AS n FROM found WHERE lane IS NOT NULL
UNION ALL
SELECT CASE WHEN lane LIKE '@%' THEN lane ELSE lane || '!' || not_for END, count(*)
FROM tasks WHERE state = 'ready' AND shelved = 0 AND not_for > ''
  AND root_id + 0 IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:roots AS text)))
GROUP BY 1
UNION ALL
SELECT DISTINCT lane, 1 FROM tasks WHERE state = 'scheduled' AND due_at <= now_ms()
  AND root_id + 0 IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:roots AS text)))

-- name: ready_to_go_on
SELECT 1 AS found FROM tasks
WHERE root_id = :root AND state IN ('ready', 'scheduled') AND shelved = 0 AND continues > -1 LIMIT 1

-- name: next_due
SELECT min(due_at) - now_ms() AS milliseconds FROM tasks WHERE state = 'scheduled' AND due_at > now_ms()
