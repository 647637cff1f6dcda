-- Inboxes.

-- name: insert_message
-- A shutdown is not earlier than the spawn it is about, also if the clock was set back.
INSERT INTO messages (key, sender, recipient, kind, text, request, accepted, task_id, rank, sent_at)
VALUES (:key, :sender, :recipient, :kind, :text, :request, :accepted, :task, :rank, (
  SELECT max(at) FROM (
    SELECT now_ms() AS at
    UNION ALL SELECT spawned_at FROM teammates WHERE name = :recipient AND CAST(:kind AS text) = 'shutdown'
  ) AS times
))
ON CONFLICT (key, recipient) DO NOTHING
RETURNING id, sent_at

-- name: messages_by_key
SELECT * FROM messages WHERE key = :key ORDER BY recipient

-- name: recipient
-- The row is locked until the commit, so that a message and a stop have an order.
SELECT name, state, lead FROM teammates WHERE name = :name
-- postgres: FOR SHARE

-- name: recipients_of_all
SELECT name, state, lead FROM teammates WHERE state NOT IN ('stopped', 'failed') AND name <> :sender ORDER BY name
-- postgres: FOR SHARE

-- name: recipients_at_work
-- Those that hold a task or let one wait: what a task begins with is not told again when it goes on.
SELECT name FROM teammates WHERE state NOT IN ('stopped', 'failed') AND name <> :sender AND (
  EXISTS (SELECT 1 FROM tasks WHERE tasks.host_id = teammates.host_id AND tasks.teammate = teammates.name
    AND tasks.state = 'claimed')
  OR EXISTS (SELECT 1 FROM tasks WHERE tasks.teammate = teammates.name AND tasks.state = 'waiting')
) ORDER BY name
-- postgres: FOR SHARE

-- name: taken_messages
SELECT * FROM messages WHERE recipient = :recipient AND taken_key = :key AND shown_at IS NULL ORDER BY rank, id

-- name: take_messages
UPDATE messages SET taken_key = :key
WHERE id IN (SELECT id FROM messages WHERE recipient = :recipient AND shown_at IS NULL ORDER BY rank, id LIMIT :count)
RETURNING *

-- name: show_messages
UPDATE messages SET shown_at = now_ms()
WHERE id IN (SELECT CAST(value ->> 'id' AS bigint) FROM json_each(CAST(:ids AS text)))
  AND recipient = :recipient AND shown_at IS NULL
RETURNING id, recipient

-- name: list_messages
SELECT * FROM messages WHERE id > :after AND (:unshown = 0 OR shown_at IS NULL) ORDER BY id LIMIT :page

-- name: list_messages_to
SELECT * FROM messages WHERE recipient = :recipient AND id > :after ORDER BY id LIMIT :page

-- name: unread_messages
-- The index of unread messages is in the order of their ranks: a page of each rank, and of these the first.
SELECT * FROM (
  SELECT * FROM (SELECT * FROM messages WHERE recipient = :recipient AND rank = 0 AND shown_at IS NULL AND id > :after
    ORDER BY id LIMIT :page) AS shutdowns
  UNION ALL
  SELECT * FROM (SELECT * FROM messages WHERE recipient = :recipient AND rank = 1 AND shown_at IS NULL AND id > :after
    ORDER BY id LIMIT :page) AS of_human
  UNION ALL
  SELECT * FROM (SELECT * FROM messages WHERE recipient = :recipient AND rank = 2 AND shown_at IS NULL AND id > :after
    ORDER BY id LIMIT :page) AS of_leads
  UNION ALL
  SELECT * FROM (SELECT * FROM messages WHERE recipient = :recipient AND rank = 3 AND shown_at IS NULL AND id > :after
    ORDER BY id LIMIT :page) AS of_peers
) AS unread ORDER BY id LIMIT :page

-- name: first_unread
SELECT id FROM messages WHERE recipient = :recipient AND shown_at IS NULL LIMIT 1

-- name: first_to_answer
-- A notice need not be answered: it is read with the next turn.
SELECT id FROM messages WHERE recipient = :recipient AND shown_at IS NULL AND kind <> 'notice' LIMIT 1

-- name: request_messages
-- A request and, if there is one already, its reply.
SELECT * FROM messages WHERE request = :request ORDER BY id

-- name: lock_request
-- Two people may answer at once; the first answer counts.
SELECT id FROM messages WHERE request = :request ORDER BY id
-- postgres: FOR UPDATE

-- name: open_requests
-- A question of a task that no longer waits for it needs no answer. So those of tasks are found by the tasks that wait:
-- a recipient may have had any number of questions.
SELECT asked.* FROM messages AS asked
WHERE asked.id IN (
  SELECT own.id FROM tasks JOIN messages AS own ON own.request = tasks.request AND own.kind IN ('question', 'plan', 'shutdown')
  WHERE tasks.state = 'waiting' AND tasks.request IS NOT NULL AND own.task_id = tasks.id AND own.recipient || '' = :recipient
  UNION SELECT id FROM messages WHERE recipient = :recipient AND kind = 'shutdown'
  UNION SELECT id FROM messages WHERE recipient = :recipient AND task_id IS NULL AND kind IN ('question', 'plan')
) AND NOT EXISTS (
  SELECT 1 FROM messages AS reply WHERE reply.request = asked.request AND reply.kind IN ('answer', 'plan_reply', 'shutdown_reply')
) AND (asked.kind <> 'shutdown' OR asked.sent_at >= (SELECT spawned_at FROM teammates WHERE name = asked.recipient))
ORDER BY asked.id

-- name: unread_shutdowns
SELECT id FROM messages WHERE recipient = :recipient AND kind = 'shutdown' AND shown_at IS NULL

-- name: answered_task
UPDATE tasks SET state = 'ready', waiting_for = NULL
WHERE request = :request AND state = 'waiting' AND waiting_for IN ('human', 'plan')
RETURNING id, root_id, lane, not_for

-- name: unread_inboxes
WITH RECURSIVE found (name) AS (
  SELECT min(recipient) FROM messages WHERE shown_at IS NULL
  UNION ALL
  SELECT (SELECT min(recipient) FROM messages WHERE shown_at IS NULL AND recipient > found.name)
  FROM found WHERE found.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL

-- name: recent_talk
-- The last messages from and to a teammate, newest first, without those to it that were not shown yet. A page of each, so
-- that its own broadcasts do not push out messages to it, which may be stored nowhere else.
SELECT * FROM (
  SELECT * FROM (
    SELECT * FROM messages WHERE recipient = :name AND shown_at IS NOT NULL ORDER BY id DESC LIMIT :page
  ) AS heard
  UNION
  SELECT * FROM (SELECT * FROM messages WHERE sender = :name ORDER BY id DESC LIMIT :page) AS said
) AS talk ORDER BY id DESC

-- name: said_by_human
-- What the human said to a teammate after one time and until another.
SELECT text FROM messages
WHERE sender = 'human' AND recipient = :recipient AND kind = 'text' AND sent_at > :after AND sent_at <= :until
ORDER BY id LIMIT :page

-- name: approved_plan
SELECT id FROM messages WHERE task_id = :task AND kind = 'plan_reply' AND accepted = 1 LIMIT 1

-- name: shutdown_requests
-- The shutdown requests to teammates of a host since they were last spawned, and the replies if there are any.
SELECT asked.recipient, asked.sender, asked.request, asked.text, reply.accepted
FROM teammates JOIN messages AS asked ON asked.recipient = teammates.name AND asked.kind = 'shutdown'
LEFT JOIN messages AS reply ON reply.request = asked.request AND reply.kind = 'shutdown_reply'
WHERE teammates.host_id = :host AND teammates.state = 'seated' AND asked.sent_at >= teammates.spawned_at
ORDER BY asked.id
