-- Numbers and pages of a board of any size, without reading all of it.

-- How many tasks are in each state: under each root, and under 0 on the whole board. Triggers count, so that the numbers
-- are also right while hosts of the version before go on.
CREATE TABLE counts (
  root_id  bigint NOT NULL,
  state    text NOT NULL,
  n        bigint NOT NULL,
  PRIMARY KEY (root_id, state)
) CLUSTERED;

-- What is not yet a part of `counts`. Only PostgreSQL uses it: its hosts add rows here, since they would wait for one
-- another if they all changed the same few rows.
CREATE TABLE count_changes (
  root_id  bigint NOT NULL,
  state    text NOT NULL,
  n        bigint NOT NULL
);

-- sqlite only
CREATE TRIGGER tasks_counted_put AFTER INSERT ON tasks BEGIN
  INSERT INTO counts (root_id, state, n) VALUES (0, NEW.state, 1), (NEW.root_id, NEW.state, 1)
    ON CONFLICT (root_id, state) DO UPDATE SET n = n + 1
; END;

-- sqlite only
CREATE TRIGGER tasks_counted_moved AFTER UPDATE OF state ON tasks WHEN OLD.state <> NEW.state BEGIN
  INSERT INTO counts (root_id, state, n) VALUES (0, NEW.state, 1), (NEW.root_id, NEW.state, 1)
    ON CONFLICT (root_id, state) DO UPDATE SET n = n + 1
; UPDATE counts SET n = n - 1 WHERE root_id IN (0, NEW.root_id) AND state = OLD.state
; DELETE FROM counts WHERE root_id = NEW.root_id AND state = OLD.state AND n = 0
; END;

-- postgres only
-- Makes the changes a part of `counts`. One process does so at a time; no other waits for it.
CREATE FUNCTION fold_counts() RETURNS void LANGUAGE plpgsql AS $function$ BEGIN
  IF pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' counts', 0)) THEN
    WITH gone AS (DELETE FROM count_changes RETURNING root_id, state, n)
    INSERT INTO counts (root_id, state, n)
    SELECT root_id, state, sum(n) FROM gone GROUP BY root_id, state HAVING sum(n) <> 0
    UNION ALL SELECT 0, state, sum(n) FROM gone GROUP BY state HAVING sum(n) <> 0
    ON CONFLICT (root_id, state) DO UPDATE SET n = counts.n + excluded.n
  ; END IF
; END $function$;

-- postgres only
CREATE FUNCTION count_put() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
  INSERT INTO count_changes (root_id, state, n) SELECT root_id, state, count(*) FROM put GROUP BY root_id, state
; IF EXISTS (SELECT 1 FROM put WHERE id % 256 = 0) THEN PERFORM fold_counts() ; END IF
; RETURN NULL
; END $function$;

-- postgres only
-- Of all changes of a state one in 256 folds, so there are never many rows to add up. The epoch is a part of that: the
-- tasks of a small board get there, too.
CREATE FUNCTION count_moved() RETURNS trigger LANGUAGE plpgsql AS $function$ BEGIN
  INSERT INTO count_changes (root_id, state, n) VALUES (NEW.root_id, NEW.state, 1), (NEW.root_id, OLD.state, -1)
; IF (NEW.id + NEW.epoch) % 256 = 0 THEN PERFORM fold_counts() ; END IF
; RETURN NULL
; END $function$;

-- postgres only
CREATE TRIGGER tasks_counted_put AFTER INSERT ON tasks REFERENCING NEW TABLE AS put
  FOR EACH STATEMENT EXECUTE FUNCTION count_put();

-- postgres only
CREATE TRIGGER tasks_counted_moved AFTER UPDATE OF state ON tasks
  FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION count_moved();

INSERT INTO counts (root_id, state, n) SELECT root_id, state, count(*) FROM tasks GROUP BY root_id, state;
INSERT INTO counts (root_id, state, n) SELECT 0, state, count(*) FROM tasks GROUP BY state;

-- Pages of tasks: by state, by root and state, by parent, and those that ended last.
DROP INDEX tasks_root;
DROP INDEX tasks_blocked;
-- Over expressions, so that a planner takes them for those statements that name them, and for no other: it would take
-- the first instead of the smaller index of a state, and read all tasks by their numbers instead of either.
CREATE INDEX tasks_state ON tasks ((state || ''), (id + 0));
CREATE INDEX tasks_under ON tasks (root_id, state, (id + 0));
CREATE INDEX tasks_children ON tasks (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_ended ON tasks (ended_at, id) WHERE ended_at IS NOT NULL;
DROP INDEX tasks_not_for;
CREATE INDEX tasks_not_for ON tasks (not_for, lane) WHERE state = 'ready' AND shelved = 0 AND not_for IS NOT NULL;
DROP INDEX tasks_asked_in;
CREATE INDEX tasks_asked_in ON tasks (asked_in, ended_at) WHERE asked_in IS NOT NULL;

-- What a host reads that works under some roots only, as `tasks_ready` for all others.
CREATE INDEX tasks_ready_under ON tasks (root_id, lane, priority DESC, chain DESC, id)
  WHERE state = 'ready' AND shelved = 0;
CREATE INDEX tasks_begun ON tasks (root_id, state, continues)
  WHERE state IN ('ready', 'scheduled') AND shelved = 0 AND continues IS NOT NULL;

CREATE INDEX attempts_claimed ON attempts (claimed_at);
CREATE INDEX budgets_held ON budgets (root_id) WHERE held IS NOT NULL;
CREATE INDEX hosts_up ON hosts (started_at, id) WHERE stopped_at IS NULL;
-- For what is pruned.
CREATE INDEX hosts_stopped ON hosts (stopped_at) WHERE stopped_at IS NOT NULL;
CREATE INDEX hosts_lost ON hosts (lost_at) WHERE lost_at IS NOT NULL;
CREATE INDEX notes_root ON notes (root_id, id);
CREATE INDEX messages_of_no_task ON messages (recipient, id) WHERE task_id IS NULL AND kind IN ('question', 'plan');
DROP INDEX messages_shutdown;
CREATE INDEX messages_shutdown ON messages (recipient, kind) WHERE kind = 'shutdown';
CREATE INDEX calls_at ON calls (at) WHERE verb <> 'assign';

ALTER TABLE head ADD COLUMN pruned_to bigint NOT NULL DEFAULT 0;  -- The transcripts of tasks that ended earlier are gone.
