-- What opening a SQLite board needs. These statements are SQLite's alone.

-- name: version
PRAGMA user_version

-- name: tables
SELECT count(*) FROM sqlite_master

-- name: hidden
-- What would act by itself. A board of ours has neither.
SELECT count(*) FROM sqlite_master WHERE type IN ('trigger', 'view')

-- name: journal
-- The WAL lets readers work beside the one writer.
PRAGMA journal_mode = WAL

-- name: durable
-- Acknowledged means on disk: the WAL is flushed at every commit.
PRAGMA synchronous = FULL

-- name: cache
PRAGMA cache_size = -65536

-- name: reading
PRAGMA query_only = ON

-- name: set_version
PRAGMA user_version = VERSION
