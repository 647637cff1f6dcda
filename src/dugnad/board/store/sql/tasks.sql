-- Putting tasks on the board and moving them by hand. Sets of rows travel as one JSON array.

-- name: new_task_ids (sqlite)
SELECT coalesce((SELECT max(id) FROM tasks), 0) + 1 + key AS id FROM json_each(:places)

-- name: new_task_ids (postgres)
SELECT nextval(pg_get_serial_sequence('tasks', 'id')) AS id FROM json_each(CAST(:places AS text))

-- name: insert_tasks
-- A key that another process has just used returns no row; the caller starts over and finds it.
WITH new AS (
  SELECT
    CAST(value ->> 'id' AS bigint) AS id, CAST(value ->> 'root' AS bigint) AS root_id,
    CAST(value ->> 'parent' AS bigint) AS parent_id, CAST(value ->> 'depth' AS bigint) AS depth,
    CAST(value ->> 'asked_in' AS bigint) AS asked_in,
    CAST(value ->> 'scope' AS bigint) AS scope, value ->> 'key' AS key, value ->> 'kind' AS kind,
    CAST(value ->> 'reviews' AS bigint) AS reviews, value ->> 'reviews_commit' AS reviews_commit, value ->> 'title' AS title,
    value ->> 'body' AS body, value ->> 'role' AS role, value ->> 'assignee' AS assignee, value ->> 'lane' AS lane,
    CAST(value ->> 'priority' AS bigint) AS priority, CAST(value ->> 'chain' AS bigint) AS chain,
    value ->> 'check' AS check_command, CAST(value ->> 'plan' AS bigint) AS plan, value ->> 'review' AS review,
    CAST(value ->> 'network' AS bigint) AS network, value ->> 'not_for' AS not_for, CAST(value ->> 'open_needs' AS bigint) AS open_needs,
    CAST(value ->> 'shelved' AS bigint) AS shelved,
    CASE
      WHEN CAST(value ->> 'not_before' AS bigint) > now_ms() + CAST(value ->> 'delay' AS bigint)
        THEN CAST(value ->> 'not_before' AS bigint)
      WHEN CAST(value ->> 'delay' AS bigint) > 0 THEN now_ms() + CAST(value ->> 'delay' AS bigint)
    END AS due_at
  FROM json_each(CAST(:tasks AS text))
)
INSERT INTO tasks (
  id, root_id, parent_id, depth, scope, key, title, body, role, assignee, lane, priority, chain, check_command, plan,
  review, network, not_for, kind, reviews, reviews_commit, asked_in, state, shelved, open_needs, due_at, put_by, put_at
)
SELECT
  id, root_id, parent_id, depth, scope, key, title, body, role, assignee, lane, priority, chain, check_command, plan,
  review, network, not_for, kind, reviews, reviews_commit, asked_in,
  CASE WHEN open_needs > 0 THEN 'blocked' WHEN due_at > now_ms() THEN 'scheduled' ELSE 'ready' END,
  shelved, open_needs, due_at, CAST(:put_by AS text), now_ms()
FROM new WHERE true
ON CONFLICT (scope, key) DO NOTHING
RETURNING id, state, due_at, put_at

-- name: insert_needs
INSERT INTO needs (task_id, needs_id, outcome, state)
SELECT CAST(value ->> 'task' AS bigint), CAST(value ->> 'needs' AS bigint), value ->> 'outcome', value ->> 'state'
FROM json_each(CAST(:needs AS text))

-- name: find_keys
-- Which of these (scope, key) pairs exist already.
SELECT tasks.id, tasks.scope, tasks.key, tasks.kind, tasks.asked_in, tasks.root_id, tasks.depth, tasks.repeats
FROM json_each(CAST(:keys AS text)) AS wanted
JOIN tasks ON tasks.scope = CAST(wanted.value ->> 'scope' AS bigint) AND tasks.key = wanted.value ->> 'key'

-- name: count_repeats
UPDATE tasks SET repeats = repeats + 1
WHERE id IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:tasks AS text)))
RETURNING id, root_id, repeats

-- name: count_children
UPDATE tasks SET children = children + :count WHERE id = :id

-- name: tasks_by_id
SELECT * FROM tasks WHERE id IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:ids AS text)))

-- name: tasks_around
-- What a task needs, what needs it, and some others.
SELECT * FROM tasks WHERE id IN (
  SELECT needs_id FROM needs WHERE task_id = :task
  UNION SELECT task_id FROM needs WHERE needs_id = :task AND state = 'open'
  UNION SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:others AS text))
)

-- name: hold_tasks
-- The rows, locked until the commit, without the long texts. Tasks that a new task needs are locked too: the transaction
-- that ends one of them then sees the new need.
SELECT id, root_id, depth, title, role, assignee, lane, not_for, priority, chain, state, open_needs, epoch, claims, tries, children,
  teammate, host_id, continues, outcome, reason, kind, asked_in
FROM tasks WHERE id IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:ids AS text))) ORDER BY id
-- postgres: FOR UPDATE

-- name: raise_chains
-- The chain behind a task grew: raise its number, and those of the tasks it needs, up to the bound.
WITH RECURSIVE up (id, chain) AS (
  SELECT CAST(value ->> 'id' AS bigint), CAST(value ->> 'chain' AS bigint) FROM json_each(CAST(:tasks AS text))
  UNION
  SELECT needs.needs_id, CASE WHEN up.chain < CAST(:chain_max AS bigint) THEN up.chain + 1 ELSE up.chain END FROM up
  JOIN tasks ON tasks.id = up.id JOIN needs ON needs.task_id = up.id
  WHERE tasks.chain < up.chain
)
UPDATE tasks SET chain = lifted.chain
FROM (SELECT id, max(chain) AS chain FROM up GROUP BY id) AS lifted
WHERE tasks.id = lifted.id AND tasks.chain < lifted.chain

-- name: lock_needs (sqlite)
SELECT seq FROM head

-- name: lock_needs (postgres)
-- Two needs that are added at once could close a circle that neither transaction sees; so one waits for the other.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' needs', 0))

-- name: path_of_needs
-- All tasks that `from_id` waits for, each with the task that needs it.
WITH RECURSIVE way (id, via) AS (
  SELECT needs_id, task_id FROM needs WHERE task_id = :from_id AND state = 'open'
  UNION
  SELECT needs.needs_id, needs.task_id FROM way JOIN needs ON needs.task_id = way.id AND needs.state = 'open'
)
SELECT id, via FROM way

-- name: insert_need
INSERT INTO needs (task_id, needs_id, outcome, state) VALUES (:task, :needs, :outcome, :state)
ON CONFLICT (task_id, needs_id) DO UPDATE SET state = excluded.state, outcome = excluded.outcome

-- name: need_of
SELECT outcome, state FROM needs WHERE task_id = :task AND needs_id = :needs

-- name: block_task
-- A new epoch, so that a late holder, whose host was lost before, cannot settle the task.
UPDATE tasks SET open_needs = open_needs + 1, state = 'blocked', epoch = epoch + 1 WHERE id = :id

-- name: needs_of
SELECT needs_id, outcome, state FROM needs WHERE task_id = :task ORDER BY needs_id

-- name: needs_behind
-- The open needs for these tasks.
SELECT needs.task_id, needs.needs_id, needs.outcome
FROM json_each(CAST(:ids AS text)) AS ended
JOIN needs ON needs.needs_id = CAST(ended.value ->> 'id' AS bigint) AND needs.state = 'open'
ORDER BY needs.task_id, needs.needs_id

-- name: mark_needs
UPDATE needs SET state = judged.state
FROM (
  SELECT CAST(value ->> 'task' AS bigint) AS task_id, CAST(value ->> 'needs' AS bigint) AS needs_id,
    value ->> 'state' AS state
  FROM json_each(CAST(:needs AS text))
) AS judged
WHERE needs.task_id = judged.task_id AND needs.needs_id = judged.needs_id

-- name: count_down
-- Atomic, so that two needs that end at once in two processes both count. An ended task is counted down, but stays ended.
UPDATE tasks SET
  open_needs = open_needs - met.n,
  state = CASE
    WHEN open_needs > met.n OR state NOT IN ('blocked', 'waiting') THEN state
    WHEN due_at > now_ms() THEN 'scheduled' ELSE 'ready' END,
  due_at = CASE WHEN open_needs > met.n OR due_at > now_ms() THEN due_at END,
  waiting_for = CASE WHEN open_needs > met.n THEN waiting_for END
FROM (
  SELECT CAST(value ->> 'id' AS bigint) AS met_id, CAST(value ->> 'n' AS bigint) AS n
  FROM json_each(CAST(:tasks AS text))
) AS met
WHERE tasks.id = met.met_id
RETURNING id, root_id, lane, not_for, state, open_needs

-- name: skip_tasks
UPDATE tasks SET state = 'skipped', epoch = epoch + 1, reason = broken.why, due_at = NULL, ended_at = now_ms()
FROM (
  SELECT CAST(value ->> 'id' AS bigint) AS broken_id, value ->> 'reason' AS why
  FROM json_each(CAST(:tasks AS text))
) AS broken
WHERE tasks.id = broken.broken_id AND state = 'blocked'
RETURNING id, root_id, reason, kind, asked_in

-- name: open_followers
-- Whether work that follows from a message is still open.
SELECT id FROM tasks WHERE asked_in = :asked AND ended_at IS NULL LIMIT 1

-- name: followers
-- The work that follows from a message, without reviews and answers, and without what the answer has waited for.
SELECT id, title, state, teammate, reason FROM tasks
WHERE asked_in = :asked AND kind IN ('goal', 'work')
  AND NOT EXISTS (SELECT 1 FROM needs WHERE needs.task_id = :asked AND needs.needs_id = tasks.id)
ORDER BY id

-- name: ended_beside
-- Of these ended tasks, those whose parent is still with the teammate that put them; not what the parent waits for.
SELECT tasks.id, tasks.epoch, tasks.title, tasks.state, tasks.teammate, substr(tasks.reason, 1, 1000) AS reason,
  substr(tasks.result, 1, 1000) AS result, tasks.parent_id, tasks.put_by
FROM json_each(CAST(:ids AS text)) AS ended
JOIN tasks ON tasks.id = CAST(ended.value ->> 'id' AS bigint)
JOIN tasks AS parents ON parents.id = tasks.parent_id
JOIN teammates ON teammates.name = tasks.put_by
WHERE parents.teammate = tasks.put_by AND parents.state IN ('claimed', 'waiting')
  AND teammates.state NOT IN ('stopped', 'failed')
  AND NOT EXISTS (SELECT 1 FROM needs WHERE needs.task_id = parents.id AND needs.needs_id = tasks.id)
ORDER BY tasks.id
-- postgres: FOR SHARE OF teammates

-- name: task_body
SELECT body FROM tasks WHERE id = :id

-- name: cancel_task
UPDATE tasks SET state = 'cancelled', epoch = epoch + 1, reason = :reason, ended_at = now_ms(),
  waiting_for = NULL, request = NULL, due_at = NULL
WHERE id = :id

-- name: reopen_task
UPDATE tasks SET state = :state, open_needs = :open_needs, epoch = epoch + 1, tries = 0, claims = 0,
  continues = NULL, outcome = NULL, result = NULL, reason = NULL, due_at = NULL, ended_at = NULL,
  lane = CASE WHEN assignee IS NULL THEN coalesce(role, '') ELSE '@' || assignee END
WHERE id = :id RETURNING epoch

-- name: broken_behind
SELECT task_id FROM needs WHERE needs_id = :id AND state = 'broken' ORDER BY task_id

-- name: release_task
-- If it was claimed, the next claim begins anew; if it was waiting, the next claim continues.
UPDATE tasks SET continues = CASE WHEN state = 'claimed' THEN NULL ELSE continues END,
  state = CASE WHEN CAST(:delay AS bigint) > 0 THEN 'scheduled' ELSE 'ready' END, epoch = epoch + 1,
  due_at = CASE WHEN :delay > 0 THEN now_ms() + :delay END, waiting_for = NULL, request = NULL, reason = :reason,
  lane = CASE WHEN assignee IS NULL THEN coalesce(role, '') ELSE '@' || assignee END
WHERE id = :id RETURNING state, due_at

-- name: assign_task
UPDATE tasks SET assignee = :assignee, lane = :lane WHERE id = :id

-- name: count_tasks_of
SELECT state, CAST(sum(n) AS bigint) AS n FROM (
  SELECT state, n FROM counts WHERE root_id = :root AND root_id <> 0
  UNION ALL SELECT state, n FROM count_changes WHERE root_id = :root
) AS parts GROUP BY state HAVING sum(n) <> 0

-- name: cost_by_teammate
-- The cost of each teammate's turns under one root.
SELECT attempts.teammate, CAST(sum(turns.tokens) AS bigint) AS tokens,
  CAST(sum(turns.microdollars) AS bigint) AS microdollars, CAST(sum(turns.milliseconds) AS bigint) AS milliseconds
FROM tasks JOIN attempts ON attempts.task_id = tasks.id
JOIN turns ON turns.task_id = attempts.task_id AND turns.epoch = attempts.epoch
WHERE tasks.root_id = :root GROUP BY attempts.teammate ORDER BY attempts.teammate

-- name: list_tasks
-- Tasks in any state.
SELECT * FROM tasks
WHERE id > :after AND (CAST(:role AS text) IS NULL OR role = :role)
  AND (CAST(:teammate AS text) IS NULL OR teammate = :teammate)
ORDER BY id LIMIT :page

-- name: list_tasks_in (sqlite)
-- Tasks in some states: a page of each, and of these the first.
SELECT tasks.* FROM json_each(:states) AS asked
JOIN tasks ON tasks.id IN (
  SELECT id FROM tasks WHERE state || '' = asked.value ->> 'state' AND id + 0 > :after
    AND (:role IS NULL OR role = :role) AND (:teammate IS NULL OR teammate = :teammate)
  ORDER BY id + 0 LIMIT :page
)
ORDER BY tasks.id LIMIT :page

-- name: list_tasks_in (postgres)
SELECT found.* FROM json_each(CAST(:states AS text)) AS asked
CROSS JOIN LATERAL (
  SELECT * FROM tasks WHERE state || '' = asked.value ->> 'state' AND id + 0 > :after
    AND (CAST(:role AS text) IS NULL OR role = :role) AND (CAST(:teammate AS text) IS NULL OR teammate = :teammate)
  ORDER BY id + 0 LIMIT :page
) AS found
ORDER BY found.id LIMIT :page

-- name: list_tasks_under (sqlite)
-- The same under one root.
SELECT tasks.* FROM json_each(:states) AS asked
JOIN tasks ON tasks.id IN (
  SELECT id FROM tasks WHERE root_id = :root AND state = asked.value ->> 'state' AND id + 0 > :after
    AND (:role IS NULL OR role = :role) AND (:teammate IS NULL OR teammate = :teammate)
  ORDER BY id + 0 LIMIT :page
)
ORDER BY tasks.id LIMIT :page

-- name: list_tasks_under (postgres)
SELECT found.* FROM json_each(CAST(:states AS text)) AS asked
CROSS JOIN LATERAL (
  SELECT * FROM tasks WHERE root_id = :root AND state = asked.value ->> 'state' AND id + 0 > :after
    AND (CAST(:role AS text) IS NULL OR role = :role) AND (CAST(:teammate AS text) IS NULL OR teammate = :teammate)
  ORDER BY id + 0 LIMIT :page
) AS found
ORDER BY found.id LIMIT :page

-- name: newest_ended
-- The tasks that ended last.
SELECT * FROM tasks
WHERE ended_at IS NOT NULL AND (CAST(:role AS text) IS NULL OR role = :role)
  AND (CAST(:teammate AS text) IS NULL OR teammate = :teammate)
ORDER BY ended_at DESC, id DESC LIMIT :page

-- name: newest_ended_under (sqlite)
-- The same under one root, by their numbers.
SELECT tasks.* FROM json_each(:states) AS asked
JOIN tasks ON tasks.id IN (
  SELECT id FROM tasks WHERE root_id = :root AND state = asked.value ->> 'state'
    AND (:role IS NULL OR role = :role) AND (:teammate IS NULL OR teammate = :teammate)
  ORDER BY id + 0 DESC LIMIT :page
)
ORDER BY tasks.id DESC LIMIT :page

-- name: newest_ended_under (postgres)
SELECT found.* FROM json_each(CAST(:states AS text)) AS asked
CROSS JOIN LATERAL (
  SELECT * FROM tasks WHERE root_id = :root AND state = asked.value ->> 'state'
    AND (CAST(:role AS text) IS NULL OR role = :role) AND (CAST(:teammate AS text) IS NULL OR teammate = :teammate)
  ORDER BY id + 0 DESC LIMIT :page
) AS found
ORDER BY found.id DESC LIMIT :page

-- name: children_of
SELECT * FROM tasks WHERE parent_id = :parent AND id > :after ORDER BY id LIMIT :page

-- name: count_tasks
-- Triggers keep these numbers, and that is why no task is read (see `migrations/0014_growing.sql`).
SELECT state, CAST(sum(n) AS bigint) AS n FROM (
  SELECT state, n FROM counts WHERE root_id = 0 UNION ALL SELECT state, n FROM count_changes
) AS parts GROUP BY state HAVING sum(n) <> 0
