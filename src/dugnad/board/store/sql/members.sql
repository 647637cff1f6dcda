-- Teammates and the hosts that run them.

-- name: insert_host
INSERT INTO hosts (id, label, scope, lease_until, started_at)
VALUES (:id, :label, :scope, now_ms() + :lease, now_ms())
ON CONFLICT (id) DO NOTHING RETURNING id

-- name: renew_host
-- One row renews all the claims of a host.
UPDATE hosts SET lease_until = now_ms() + :lease WHERE id = :id AND stopped_at IS NULL AND lost_at IS NULL
RETURNING id

-- name: revive_host
-- A lost host comes back under the same id, with the claims that were not taken back yet.
UPDATE hosts SET lease_until = now_ms() + :lease, lost_at = NULL WHERE id = :id AND stopped_at IS NULL
RETURNING id, label

-- name: read_host
SELECT * FROM hosts WHERE id = :id

-- name: stop_host
UPDATE hosts SET stopped_at = now_ms() WHERE id = :id AND stopped_at IS NULL RETURNING id, label

-- name: list_hosts
SELECT id, label, started_at, lease_until, CASE WHEN stopped_at IS NULL AND lost_at IS NULL AND lease_until > now_ms()
  AND lease_until <= now_ms() + :lease_max THEN 1 ELSE 0 END AS alive
FROM hosts WHERE stopped_at IS NULL ORDER BY started_at, id

-- name: lose_hosts
-- Hosts whose lease ran out. Of hosts that were watched, only those that have not renewed it since.
UPDATE hosts SET lost_at = now_ms() WHERE id IN (
  SELECT id FROM hosts WHERE stopped_at IS NULL AND lost_at IS NULL
    AND (lease_until <= now_ms() OR lease_until > now_ms() + :lease_max)
    AND (CAST(:silent AS text) IS NULL OR (id, lease_until) IN (
      SELECT value ->> 'id', CAST(value ->> 'lease_until' AS bigint) FROM json_each(CAST(:silent AS text))))
  -- postgres: FOR UPDATE SKIP LOCKED
) RETURNING id, label

-- name: prune_hosts
DELETE FROM hosts WHERE id IN (
    SELECT id FROM hosts WHERE stopped_at < now_ms() - :age UNION SELECT id FROM hosts WHERE lost_at < now_ms() - :age
  )
  AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.host_id = hosts.id AND tasks.state = 'claimed')
  AND NOT EXISTS (SELECT 1 FROM teammates WHERE teammates.host_id = hosts.id AND teammates.state = 'seated')
RETURNING id

-- name: hold_teammate
SELECT * FROM teammates WHERE name = :name
-- postgres: FOR UPDATE

-- name: insert_teammate
INSERT INTO teammates (name, roles, lead, prompt, model, plan, keep_context, named, state, spawned_at)
VALUES (:name, :roles, :lead, :prompt, :model, :plan, :keep_context, :named, 'wanted', now_ms())
ON CONFLICT (name) DO NOTHING RETURNING name

-- name: respawn_teammate
-- Later than every shutdown that was asked before, also if the clock was set back. A teammate that was named stays so.
UPDATE teammates SET roles = :roles, lead = :lead, prompt = :prompt, model = :model, plan = :plan,
  keep_context = :keep_context,
  named = CASE WHEN :named = 1 THEN 1 ELSE named END,
  state = 'wanted', host_id = NULL, reason = NULL, spawned_at = (
    SELECT max(at) FROM (
      SELECT now_ms() AS at
      UNION ALL SELECT max(sent_at) + 1 FROM messages WHERE recipient = :name AND kind = 'shutdown'
    ) AS times
  ) WHERE name = :name

-- name: lock_seats (sqlite)
SELECT 1

-- name: lock_seats (postgres)
-- One host looks for teammates at a time, so that none is left out because another host has locked it.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' seats', 0))

-- name: takeable_teammates
-- Wanted ones, and those whose host is gone: it stopped, or was declared lost. That its lease ran out is not enough:
-- a clock that jumps ends all leases at once.
SELECT teammates.name FROM teammates LEFT JOIN hosts ON hosts.id = teammates.host_id
WHERE (CAST(:name AS text) IS NULL OR teammates.name = :name) AND (teammates.state = 'wanted' OR (teammates.state = 'seated' AND (
  hosts.id IS NULL OR hosts.stopped_at IS NOT NULL OR hosts.lost_at IS NOT NULL)))
ORDER BY teammates.lead DESC, teammates.spawned_at, teammates.name LIMIT :count
-- postgres: FOR UPDATE OF teammates

-- name: seat_teammate
UPDATE teammates SET state = 'seated', host_id = :host, seat = seat + 1, reason = NULL WHERE name = :name RETURNING *

-- name: end_teammate
UPDATE teammates SET state = :state, host_id = NULL, seat = seat + 1, reason = :reason WHERE name = :name

-- name: outsiders_of_host
-- Teammates that are clients of this host: no other host can run them.
SELECT name FROM teammates WHERE host_id = :host AND state = 'seated' AND model LIKE 'mcp:%' ORDER BY name

-- name: list_teammates
-- What each teammate is doing is derived here, so that it cannot be out of date. With `here`, those that stopped by
-- themselves, and come back when there is work, come last.
SELECT teammates.*,
  CASE WHEN hosts.id IS NOT NULL AND hosts.stopped_at IS NULL AND hosts.lost_at IS NULL AND hosts.lease_until > now_ms()
    AND hosts.lease_until <= now_ms() + :lease_max THEN 1 ELSE 0 END AS alive,
  CASE WHEN hosts.stopped_at IS NOT NULL THEN 1 ELSE 0 END AS left_in_order,
  (SELECT min(id) FROM tasks WHERE tasks.host_id = teammates.host_id AND tasks.teammate = teammates.name
    AND tasks.state = 'claimed') AS task_id,
  (SELECT title FROM tasks WHERE tasks.host_id = teammates.host_id AND tasks.teammate = teammates.name
    AND tasks.state = 'claimed' ORDER BY id LIMIT 1) AS task_title,
  (SELECT count(*) FROM tasks WHERE tasks.teammate = teammates.name AND tasks.state = 'waiting') AS waiting
FROM teammates LEFT JOIN hosts ON hosts.id = teammates.host_id
WHERE teammates.state <> 'human' AND (CAST(:name AS text) IS NULL OR teammates.name = :name)
  AND (:here = 0 OR teammates.state NOT IN ('stopped', 'failed') OR (teammates.state = 'stopped'
    AND (teammates.reason = 'rested: there was nothing to do' OR teammates.reason LIKE 'made room for %')))
ORDER BY teammates.lead DESC, CASE WHEN :here = 1 AND teammates.state = 'stopped' THEN 1 ELSE 0 END,
  teammates.spawned_at, teammates.name LIMIT :most

-- name: next_lapse
-- The time until there may be something to take back: until the first lease runs out, unless it is renewed; or zero, if
-- a stopped or lost host still has a claim, or if a lease is longer than any lease can be.
WITH RECURSIVE holders (host) AS (
  SELECT min(host_id) FROM tasks WHERE state = 'claimed'
  UNION ALL
  SELECT (SELECT min(host_id) FROM tasks WHERE state = 'claimed' AND host_id > holders.host)
  FROM holders WHERE holders.host IS NOT NULL
)
SELECT CASE
  WHEN EXISTS (
    SELECT 1 FROM holders JOIN hosts ON hosts.id = holders.host
    WHERE hosts.stopped_at IS NOT NULL OR hosts.lost_at IS NOT NULL
  ) OR EXISTS (
    SELECT 1 FROM hosts WHERE stopped_at IS NULL AND lost_at IS NULL AND lease_until > now_ms() + :lease_max
  ) THEN 0
  ELSE (SELECT min(lease_until) - now_ms() FROM hosts WHERE stopped_at IS NULL AND lost_at IS NULL)
END AS milliseconds
