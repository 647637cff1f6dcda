-- The steps of a script: what holders write when nothing stands in the way. Each step gets one JSON array and must find
-- one row for each of its entries; a step called `no_...` must find none. If one does not, nothing is written, and the
-- verbs decide instead.

-- name: holds
-- The fence: the rows of the tasks, locked, at the epochs of their holders.
SELECT tasks.id FROM json_each(CAST(:given AS text)) AS held
JOIN tasks ON tasks.id = CAST(held.value ->> 'id' AS bigint) AND tasks.epoch = CAST(held.value ->> 'epoch' AS bigint)
ORDER BY tasks.id
-- postgres: FOR UPDATE OF tasks

-- name: no_cooldown
SELECT cooldowns.key FROM json_each(CAST(:given AS text)) AS asked
JOIN cooldowns ON cooldowns.key = asked.value ->> 'key' WHERE until > now_ms()

-- name: show_taken
UPDATE messages SET shown_at = now_ms()
FROM (
  SELECT CAST(value ->> 'id' AS bigint) AS given_id, value ->> 'recipient' AS given_recipient
  FROM json_each(CAST(:given AS text))
) AS given
WHERE messages.id = given_id AND recipient = given_recipient AND shown_at IS NULL
RETURNING id

-- name: settle_reservations
-- Only one that is as the holder made it.
UPDATE reservations SET state = 'settled', tokens_used = given_used
FROM (
  SELECT value ->> 'key' AS given_key, CAST(value ->> 'task' AS bigint) AS given_task,
    CAST(value ->> 'used' AS bigint) AS given_used, CAST(value ->> 'tokens' AS bigint) AS given_tokens,
    CAST(value ->> 'microdollars' AS bigint) AS given_microdollars,
    CAST(value ->> 'milliseconds' AS bigint) AS given_milliseconds
  FROM json_each(CAST(:given AS text))
) AS given
WHERE reservations.key = given_key AND task_id = given_task AND state = 'open' AND tokens = given_tokens
  AND microdollars = given_microdollars AND milliseconds = given_milliseconds
RETURNING key

-- name: move_accounts
-- Not if something was reserved (`asks`) that does not fit, nor if something is given back (`frees`) that a task waits for.
UPDATE budgets SET
  tokens = tokens + more_tokens, microdollars = microdollars + more_microdollars,
  milliseconds = milliseconds + more_milliseconds, tokens_reserved = tokens_reserved + more_tokens_reserved,
  microdollars_reserved = microdollars_reserved + more_microdollars_reserved,
  milliseconds_reserved = milliseconds_reserved + more_milliseconds_reserved
FROM (
  SELECT CAST(value ->> 'root' AS bigint) AS moved_root, CAST(value ->> 'asks' AS bigint) AS asks,
    CAST(value ->> 'frees' AS bigint) AS frees,
    CAST(value ->> 'tokens' AS bigint) AS more_tokens, CAST(value ->> 'microdollars' AS bigint) AS more_microdollars,
    CAST(value ->> 'milliseconds' AS bigint) AS more_milliseconds,
    CAST(value ->> 'tokens_reserved' AS bigint) AS more_tokens_reserved,
    CAST(value ->> 'microdollars_reserved' AS bigint) AS more_microdollars_reserved,
    CAST(value ->> 'milliseconds_reserved' AS bigint) AS more_milliseconds_reserved
  FROM json_each(CAST(:given AS text))
) AS moved
WHERE budgets.root_id = moved_root
  AND (frees = 0 OR parked = 0)
  AND (asks = 0 OR (
    (tokens_max IS NULL OR tokens + more_tokens + tokens_reserved + more_tokens_reserved <= tokens_max)
    AND (microdollars_max IS NULL
      OR microdollars + more_microdollars + microdollars_reserved + more_microdollars_reserved <= microdollars_max)
    AND (milliseconds_max IS NULL
      OR milliseconds + more_milliseconds + milliseconds_reserved + more_milliseconds_reserved <= milliseconds_max)
  ))
RETURNING root_id

-- name: no_open_reservation
SELECT reservations.key FROM json_each(CAST(:given AS text)) AS ended
JOIN reservations ON reservations.task_id = CAST(ended.value ->> 'id' AS bigint) AND reservations.state = 'open'

-- name: no_dependent
SELECT needs.task_id FROM json_each(CAST(:given AS text)) AS ended
JOIN needs ON needs.needs_id = CAST(ended.value ->> 'id' AS bigint) AND needs.state = 'open'

-- name: no_parent_at_work
-- Whose teammate would have to be told that a task has ended which it added.
SELECT tasks.id FROM json_each(CAST(:given AS text)) AS ended
JOIN tasks ON tasks.id = CAST(ended.value ->> 'id' AS bigint)
JOIN tasks AS parents ON parents.id = tasks.parent_id
WHERE parents.teammate = tasks.put_by AND parents.state IN ('claimed', 'waiting')

-- name: view_candidates (sqlite)
-- What a claim would find, with nothing locked: the first few tasks of each lane, and the account of each.
SELECT tasks.*, budgets.held, budgets.tasks_max, budgets.runs,
  (SELECT count(*) FROM attempts WHERE attempts.task_id = tasks.id) AS attempts
FROM json_each(:lanes) AS asked
JOIN tasks ON tasks.id IN (
  SELECT id FROM tasks WHERE state = 'ready' AND shelved = 0 AND lane = asked.value ->> 'lane'
  ORDER BY priority DESC, chain DESC, id LIMIT :count
)
JOIN budgets ON budgets.root_id = tasks.root_id

-- name: view_candidates (postgres)
SELECT best.*, budgets.held, budgets.tasks_max, budgets.runs,
  (SELECT count(*) FROM attempts WHERE attempts.task_id = best.id) AS attempts
FROM json_each(CAST(:lanes AS text)) AS asked
CROSS JOIN LATERAL (
  SELECT * FROM tasks WHERE state = 'ready' AND shelved = 0 AND lane = asked.value ->> 'lane'
  ORDER BY priority DESC, chain DESC, id LIMIT :count
) AS best
JOIN budgets ON budgets.root_id = best.root_id

-- name: view_candidates_under (sqlite)
-- The same under some roots only.
SELECT tasks.*, budgets.held, budgets.tasks_max, budgets.runs,
  (SELECT count(*) FROM attempts WHERE attempts.task_id = tasks.id) AS attempts
FROM json_each(:lanes) AS asked, json_each(:roots) AS scope
JOIN tasks ON tasks.id IN (
  SELECT id FROM tasks WHERE root_id = CAST(scope.value ->> 'id' AS bigint) AND lane = asked.value ->> 'lane'
    AND state = 'ready' AND shelved * 1 = 0
  ORDER BY priority DESC, chain DESC, id LIMIT :count
)
JOIN budgets ON budgets.root_id = tasks.root_id

-- name: view_candidates_under (postgres)
SELECT best.*, budgets.held, budgets.tasks_max, budgets.runs,
  (SELECT count(*) FROM attempts WHERE attempts.task_id = best.id) AS attempts
FROM json_each(CAST(:lanes AS text)) AS asked, json_each(CAST(:roots AS text)) AS scope
CROSS JOIN LATERAL (
  SELECT * FROM tasks WHERE root_id = CAST(scope.value ->> 'id' AS bigint) AND lane = asked.value ->> 'lane'
    AND state = 'ready' AND shelved * 1 = 0
  ORDER BY priority DESC, chain DESC, id LIMIT :count
) AS best
JOIN budgets ON budgets.root_id = best.root_id

-- name: seated
-- The teammates that ask are as they were when the lanes were chosen, and their hosts are alive. Each is found by its
-- name, and each host by its id: the conditions are written so that the smaller indexes of all seated teammates, and of
-- all hosts that are up, are not read for each of them.
SELECT teammates.name FROM json_each(CAST(:given AS text)) AS asked
JOIN teammates ON teammates.name = asked.value ->> 'name' AND teammates.state || '' = 'seated'
  AND teammates.host_id = asked.value ->> 'host' AND teammates.roles = asked.value ->> 'roles'
  AND teammates.lead = CAST(asked.value ->> 'lead' AS bigint)
  AND teammates.keep_context = CAST(asked.value ->> 'keep_context' AS bigint)
JOIN hosts ON hosts.id = teammates.host_id AND hosts.scope IS NOT DISTINCT FROM asked.value ->> 'scope'
  AND coalesce(hosts.stopped_at, hosts.lost_at) IS NULL AND hosts.lease_until > now_ms()
  AND hosts.lease_until <= now_ms() + CAST(asked.value ->> 'lease_max' AS bigint)

-- name: no_task_due
SELECT tasks.id FROM json_each(CAST(:given AS text)) AS once
JOIN tasks ON tasks.state = once.value ->> 'state' AND tasks.state = 'scheduled' AND tasks.due_at <= now_ms()

-- name: take_tasks
-- As `claim_tasks`, of tasks that are as they were seen: the claim tells of the row that was seen, as long texts make a
-- slow script. The sum keeps the planner from the index of all ready work.
UPDATE tasks SET state = 'claimed', epoch = epoch + 1, claims = claims + 1, due_at = NULL,
  teammate = taken.taker, host_id = taken.taker_host, reason = NULL
FROM (
  SELECT CAST(value ->> 'id' AS bigint) AS taken_id, value ->> 'teammate' AS taker, value ->> 'host' AS taker_host,
    CAST(value ->> 'epoch' AS bigint) AS seen_epoch, value ->> 'lane' AS seen_lane
  FROM json_each(CAST(:given AS text))
) AS taken
WHERE tasks.id = taken.taken_id AND epoch = taken.seen_epoch AND lane = taken.seen_lane AND state = 'ready'
  AND shelved + 0 = 0
RETURNING id

-- name: charge_accounts
UPDATE budgets SET runs = runs + charged.n
FROM (
  SELECT CAST(value ->> 'root' AS bigint) AS charged_root, CAST(value ->> 'n' AS bigint) AS n
  FROM json_each(CAST(:given AS text))
) AS charged
WHERE budgets.root_id = charged.charged_root AND held IS NULL AND (tasks_max IS NULL OR runs + charged.n <= tasks_max)
RETURNING root_id

-- name: view_dependents
-- The open needs for these tasks, and the tasks that have them.
SELECT needs.task_id, needs.needs_id, needs.outcome, tasks.root_id, tasks.lane, tasks.not_for, tasks.state,
  tasks.open_needs, tasks.due_at
FROM json_each(CAST(:ids AS text)) AS ended
JOIN needs ON needs.needs_id = CAST(ended.value ->> 'id' AS bigint) AND needs.state = 'open'
JOIN tasks ON tasks.id = needs.task_id
ORDER BY needs.task_id, needs.needs_id

-- name: meet_needs
UPDATE needs SET state = 'met'
FROM (
  SELECT CAST(value ->> 'task' AS bigint) AS given_task, CAST(value ->> 'needs' AS bigint) AS given_needs,
    value ->> 'outcome' AS given_outcome
  FROM json_each(CAST(:given AS text))
) AS given
WHERE needs.task_id = given_task AND needs.needs_id = given_needs AND needs.state = 'open'
  AND needs.outcome IS NOT DISTINCT FROM given_outcome
RETURNING task_id

-- name: count_down_seen
-- As `count_down`, of tasks that are as they were seen, and that are not for later.
UPDATE tasks SET open_needs = open_needs - met.n, state = met.then_state,
  waiting_for = CASE WHEN open_needs > met.n THEN waiting_for END
FROM (
  SELECT CAST(value ->> 'id' AS bigint) AS met_id, CAST(value ->> 'n' AS bigint) AS n,
    CAST(value ->> 'open_needs' AS bigint) AS seen_needs, value ->> 'state' AS seen_state,
    value ->> 'then_state' AS then_state
  FROM json_each(CAST(:given AS text))
) AS met
WHERE tasks.id = met.met_id AND open_needs = seen_needs AND state = seen_state AND due_at IS NULL
RETURNING id
