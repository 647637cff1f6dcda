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

-- name: rows_of
-- The rows of a statement, in one column.
(SELECT coalesce(json_agg(found_rows), '[]'::json)::text FROM (STATEMENT) AS found_rows)

-- name: push
SELECT pg_notify($1, $2)

-- name: commit_then_flush
-- The commit gives up its locks, and the second transaction waits for the disk: what is flushed for it, is so for all
-- before it. So a row that many processes need, as that of the log, is not locked during a flush.
SET LOCAL synchronous_commit = off; COMMIT; SELECT pg_logical_emit_message(true, 'dugnad', '')

-- name: commit_after_flush
-- A call that changed nothing may answer with what another process has just committed, so that is flushed first.
COMMIT; SELECT pg_logical_emit_message(true, 'dugnad', '') WHERE pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()

-- name: run_script
CALL pg_temp.run_script($1, $2, $3, $4, $5, $6, $7, $8, NULL)

-- name: script_step
WHEN 'NAME' THEN
      WITH touched AS (STATEMENT)
      SELECT count(*), jsonb_agg(touched) FILTER (WHERE is_told)
      FROM touched INTO this_count, these_rows

-- name: script_procedure
-- Runs the steps of a script, appends its events, and commits as `commit_then_flush` does. It is for this connection
-- only, so that processes of two versions do not change each other's.
CREATE OR REPLACE PROCEDURE pg_temp.run_script(
  given_steps text[], given_lists text[], given_rows bigint[], given_tells text[],
  given_events text, given_count bigint, given_channel text, given_topics text, INOUT all_told text
) LANGUAGE plpgsql AS $procedure$
#variable_conflict use_column
DECLARE
  this_step text;
  this_given text;
  this_count bigint;
  is_told boolean;
  these_rows jsonb;
  told jsonb := '{}';
  this_end text;
BEGIN
  FOR this_place IN 1 .. cardinality(given_steps) LOOP
    this_step := given_steps[this_place];
    this_given := given_lists[this_place];
    is_told := this_step = ANY (given_tells);
    CASE this_step
STEPS
    END CASE;
    IF this_count <> given_rows[this_place] THEN
      RAISE EXCEPTION 'a step of a script found something else' USING ERRCODE = 'DG001';
    END IF;
    IF these_rows IS NOT NULL THEN
      told := told || jsonb_build_object(this_step, these_rows);
    END IF;
  END LOOP;
  APPEND_EVENTS INTO this_end;
  PERFORM set_config('synchronous_commit', 'off', true);
  COMMIT;
  PERFORM pg_logical_emit_message(true, 'dugnad', '');
  all_told := told;
END
$procedure$
