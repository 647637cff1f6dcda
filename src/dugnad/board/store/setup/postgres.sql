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

-- name: run_script
SELECT pg_temp.run_script($1, $2, $3, $4, $5)

-- name: script_step
WHEN 'NAME' THEN
      WITH touched AS (STATEMENT)
      SELECT count(*), jsonb_agg(touched) FILTER (WHERE is_told)
      FROM touched INTO this_count, these_rows

-- name: script_function
-- Runs the steps of a script, then appends its events. It is for this connection only, so that processes of two
-- versions do not change each other's.
CREATE OR REPLACE FUNCTION pg_temp.run_script(
  given_steps text, given_events text, given_count bigint, given_channel text, given_topics text
) RETURNS text LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
  this_step jsonb;
  this_given text;
  this_count bigint;
  is_told boolean;
  these_rows jsonb;
  all_told jsonb := '{}';
  this_end text;
BEGIN
  FOR this_step IN SELECT value FROM json_each(given_steps) LOOP
    this_given := this_step ->> 'given';
    is_told := (this_step ->> 'tells')::boolean;
    CASE this_step ->> 'name'
STEPS
    END CASE;
    IF this_count <> (this_step ->> 'rows')::bigint THEN
      RAISE EXCEPTION 'a step of a script found something else' USING ERRCODE = 'DG001';
    END IF;
    IF these_rows IS NOT NULL THEN
      all_told := all_told || jsonb_build_object(this_step ->> 'name', these_rows);
    END IF;
  END LOOP;
  APPEND_EVENTS INTO this_end;
  RETURN all_told;
END
$function$
