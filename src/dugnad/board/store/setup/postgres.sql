-- The statements that open a PostgreSQL board. SCHEMA stands for the board's schema, whose name is checked against a
-- narrow pattern before it is put in.

-- name: encoding
SELECT current_setting('server_encoding') AS encoding, current_setting('server_version_num')::int AS version

-- name: lock_board
-- If several processes start together, one migrates and the others wait for it.
SELECT pg_advisory_xact_lock(hashtextextended('dugnad:' || $1, 0))

-- name: schema_exists
SELECT EXISTS (SELECT 1 FROM information_schema.schemata WHERE schema_name = $1) AS found

-- name: create_schema
CREATE SCHEMA SCHEMA

-- name: create_migrations
CREATE TABLE IF NOT EXISTS migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())

-- name: migrations_exist
SELECT to_regclass('SCHEMA.migrations') IS NOT NULL AS found

-- name: version
SELECT coalesce(max(version), 0) AS version FROM migrations

-- name: set_version
INSERT INTO migrations (version) VALUES ($1)
