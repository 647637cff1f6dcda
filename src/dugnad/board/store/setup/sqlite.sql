-- The statements that open a SQLite board.

-- name: version
PRAGMA user_version

-- name: schema
-- Without what SQLite makes by itself.
SELECT type, name, sql FROM sqlite_master WHERE substr(name, 1, 7) <> 'sqlite_' LIMIT 1000

-- name: wary
PRAGMA trusted_schema = OFF

-- name: shrinking
-- Free pages can be given back a few at a time. An older board can do so after its first whole VACUUM.
PRAGMA auto_vacuum = INCREMENTAL

-- name: can_shrink
PRAGMA auto_vacuum

-- name: free_pages
PRAGMA freelist_count

-- name: give_back
PRAGMA incremental_vacuum(1000)

-- name: vacuum
PRAGMA auto_vacuum = INCREMENTAL;
VACUUM;

-- name: checkpoint
-- The file gets shorter when the WAL was written into it.
PRAGMA wal_checkpoint(TRUNCATE)

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
