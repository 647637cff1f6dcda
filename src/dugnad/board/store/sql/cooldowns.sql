-- Provider keys: their pauses, and how fast the team uses them.

-- name: read_cooldown
SELECT now_ms() AS now, cooldowns.* FROM (SELECT 1 AS one) AS always LEFT JOIN cooldowns ON cooldowns.key = :key

-- name: write_cooldown
INSERT INTO cooldowns (key, until, milliseconds, strikes, reason)
VALUES (:key, :until, :milliseconds, :strikes, :reason)
ON CONFLICT (key) DO UPDATE SET until = excluded.until, milliseconds = excluded.milliseconds,
  strikes = excluded.strikes, reason = excluded.reason

-- name: running_cooldowns
-- A pause that would last much longer than it was set for is left out: the clock was set back since.
SELECT * FROM cooldowns WHERE until > now_ms() AND until <= now_ms() + milliseconds + 60000 ORDER BY key

-- name: lock_paces (sqlite)
SELECT 1 WHERE :keys IS NULL

-- name: lock_paces (postgres)
-- One process counts the use of a key at a time, so that two do not both take the last free place. In the order of the
-- keys, and after the accounts, so that two batches cannot wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' pace ' || label, 0))
FROM (SELECT DISTINCT value ->> 'key' AS label FROM json_each(CAST(:keys AS text)) ORDER BY 1) AS labels

-- name: read_paces
SELECT labels.label, now_ms() AS now, cooldowns.until, cooldowns.milliseconds, cooldowns.reason
FROM (SELECT value ->> 'key' AS label FROM json_each(CAST(:keys AS text))) AS labels
LEFT JOIN cooldowns ON cooldowns.key = labels.label

-- name: used_of_paces
-- The use of each key, second by second, oldest first: these are few rows, however many calls there were. A reservation
-- of more than a minute in the future was made before the clock was set back.
SELECT pace, count(*) AS requests, CAST(sum(coalesce(tokens_used, tokens)) AS bigint) AS tokens,
  max(reserved_at) AS last_at
FROM reservations
WHERE pace IS NOT NULL AND reserved_at > :since AND reserved_at <= :since + 120000
  AND pace IN (SELECT value ->> 'key' FROM json_each(CAST(:keys AS text)))
GROUP BY pace, reserved_at / 1000
ORDER BY last_at
