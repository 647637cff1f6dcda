-- The board. One text for both databases; statements marked "sqlite only" or "postgres only" are for
-- that one. IDENTITY stands for the column type that numbers rows by itself, NUMBER_KEY for a key that is a number we
-- give, CLUSTERED for rows kept in the order of their key; SQLite has a form of its own for each.
-- Times are integer milliseconds since 1970, money is integer micro-dollars, JSON is opaque text.

-- postgres only
-- The database's clock, as SQLite has it from the process. Stable within a statement, so indexes apply.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE AS
  'SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint';

-- postgres only
-- SQLite's json_each over an array, so that set-based statements read the same on both.
CREATE FUNCTION json_each(items text) RETURNS TABLE (key bigint, value jsonb)
  LANGUAGE sql IMMUTABLE STRICT ROWS 20 AS
  'SELECT n - 1, item FROM jsonb_array_elements(items::jsonb) WITH ORDINALITY AS list(item, n)';

CREATE TABLE tasks (
  id             IDENTITY,
  root_id        bigint NOT NULL,            -- The goal at the top; of a root, its own id.
  parent_id      bigint,
  depth          integer NOT NULL,           -- 0 for a root.
  scope          bigint NOT NULL,            -- Where the key is unique: 0 for roots, else the root.
  key            text NOT NULL,
  title          text NOT NULL,
  body           text NOT NULL,
  role           text,
  assignee       text,
  lane           text NOT NULL,              -- Who may claim it: "@name", "role", or "" for anyone.
  priority       integer NOT NULL,
  chain          integer NOT NULL DEFAULT 0, -- Longest chain of dependents put behind it; 0: none.
  check_command  text,
  state          text NOT NULL,
  shelved        integer NOT NULL DEFAULT 0, -- 1: ready, but its root is held; kept out of the index.
  open_needs     integer NOT NULL,           -- Needs not yet met. Ready when this reaches 0.
  due_at         bigint,                     -- Not to be claimed before.
  epoch          bigint NOT NULL DEFAULT 0,
  claims         integer NOT NULL DEFAULT 0,
  tries          integer NOT NULL DEFAULT 0,
  children       integer NOT NULL DEFAULT 0,
  repeats        integer NOT NULL DEFAULT 0, -- Times an equal follow-up was answered with this one.
  teammate       text,
  host_id        text,
  continues      bigint,                     -- The attempt that the next one goes on from.
  waiting_for    text,
  request        text,
  outcome        text,
  result         text,
  reason         text,
  put_by         text NOT NULL,
  put_at         bigint NOT NULL,
  ended_at       bigint
);
CREATE UNIQUE INDEX tasks_key ON tasks (scope, key);
CREATE INDEX tasks_root ON tasks (root_id, id);
-- The only index a claim reads: nothing in it is blocked, held, for later or ended.
CREATE INDEX tasks_ready ON tasks (lane, priority DESC, chain DESC, id) WHERE state = 'ready' AND shelved = 0;
CREATE INDEX tasks_due ON tasks (due_at) WHERE state = 'scheduled';
CREATE INDEX tasks_claimed ON tasks (host_id) WHERE state = 'claimed';
CREATE INDEX tasks_shelved ON tasks (root_id) WHERE shelved = 1;
CREATE INDEX tasks_waiting ON tasks (teammate) WHERE state = 'waiting';
CREATE INDEX tasks_request ON tasks (request) WHERE state = 'waiting';

CREATE TABLE needs (
  task_id   bigint NOT NULL,
  needs_id  bigint NOT NULL,
  outcome   text,                            -- NULL: any way of being done.
  state     text NOT NULL,                   -- open, met, broken (can never be met).
  PRIMARY KEY (task_id, needs_id)
) CLUSTERED;
CREATE INDEX needs_behind ON needs (needs_id);

CREATE TABLE attempts (
  task_id     bigint NOT NULL,
  epoch       bigint NOT NULL,
  number      integer NOT NULL,
  claim_key   text NOT NULL,                 -- A repeated claim call finds its answer by this.
  teammate    text NOT NULL,
  host_id     text NOT NULL,
  continues   bigint,
  claimed_at  bigint NOT NULL,
  ended_at    bigint,
  ended_as    text,
  settled_as  text,                          -- The outcome as it was given: a repeated settle compares.
  handover    text,
  reason      text,
  PRIMARY KEY (task_id, epoch)
) CLUSTERED;
CREATE UNIQUE INDEX attempts_key ON attempts (claim_key);

CREATE TABLE turns (
  task_id       bigint NOT NULL,
  epoch         bigint NOT NULL,
  number        integer NOT NULL,
  kind          text NOT NULL,
  body          text NOT NULL,
  tokens        bigint NOT NULL,
  microdollars  bigint NOT NULL,
  milliseconds  bigint NOT NULL,
  covers_from   integer,
  covers_to     integer,
  at            bigint NOT NULL,
  PRIMARY KEY (task_id, epoch, number)
);

CREATE TABLE budgets (
  root_id                NUMBER_KEY,
  tasks_max              bigint,             -- NULL: no cap of this kind.
  tokens_max             bigint,
  microdollars_max       bigint,
  milliseconds_max       bigint,
  runs                   bigint NOT NULL DEFAULT 0,
  tokens                 bigint NOT NULL DEFAULT 0,
  microdollars           bigint NOT NULL DEFAULT 0,
  milliseconds           bigint NOT NULL DEFAULT 0,
  tokens_reserved        bigint NOT NULL DEFAULT 0,
  microdollars_reserved  bigint NOT NULL DEFAULT 0,
  milliseconds_reserved  bigint NOT NULL DEFAULT 0,
  tasks                  bigint NOT NULL DEFAULT 0,
  parked                 integer NOT NULL DEFAULT 0, -- Tasks that wait for others' reservations to come back.
  held                   text                -- Why nothing under this root can be claimed; NULL: nothing.
);

CREATE TABLE reservations (
  key           text PRIMARY KEY,
  root_id       bigint NOT NULL,
  task_id       bigint NOT NULL,
  epoch         bigint NOT NULL,
  tokens        bigint NOT NULL,
  microdollars  bigint NOT NULL,
  milliseconds  bigint NOT NULL,
  state         text NOT NULL                -- open, settled, forfeited (unknown, so counted as spent).
);
CREATE INDEX reservations_open ON reservations (task_id) WHERE state = 'open';

CREATE TABLE hosts (
  id           text PRIMARY KEY,             -- New with every start of a process: nothing is inherited.
  label        text NOT NULL,
  lease_until  bigint NOT NULL,
  stopped_at   bigint,
  lost_at      bigint,
  started_at   bigint NOT NULL
);

CREATE TABLE teammates (
  name        text PRIMARY KEY,
  roles       text NOT NULL,                 -- A JSON array of names.
  lead        integer NOT NULL,
  prompt      text NOT NULL,
  model       text NOT NULL,
  state       text NOT NULL,                 -- human, wanted, seated, stopped, failed.
  host_id     text,
  seat        bigint NOT NULL DEFAULT 0,
  reason      text,
  spawned_at  bigint NOT NULL
);
CREATE INDEX teammates_host ON teammates (host_id) WHERE state = 'seated';
CREATE INDEX teammates_wanted ON teammates (name) WHERE state = 'wanted';
INSERT INTO teammates (name, roles, lead, prompt, model, state, spawned_at)
  VALUES ('human', '[]', 0, '', '', 'human', 0);

CREATE TABLE messages (
  id         IDENTITY,
  key        text NOT NULL,
  sender     text NOT NULL,
  recipient  text NOT NULL,
  kind       text NOT NULL,
  text       text NOT NULL,
  request    text,
  accepted   integer,
  task_id    bigint,
  rank       integer NOT NULL,               -- 0 shutdown, 1 human, 2 lead, 3 peers.
  taken_key  text,                           -- The take that was given it last; it is shown by a turn.
  shown_at   bigint,
  sent_at    bigint NOT NULL
);
CREATE UNIQUE INDEX messages_key ON messages (key, recipient);
CREATE INDEX messages_inbox ON messages (recipient, rank, id) WHERE shown_at IS NULL;
CREATE INDEX messages_request ON messages (request) WHERE request IS NOT NULL;
CREATE UNIQUE INDEX messages_asked ON messages (request) WHERE kind IN ('question', 'plan', 'shutdown');

CREATE TABLE notes (
  id       IDENTITY,
  key      text NOT NULL,
  author   text NOT NULL,
  title    text NOT NULL,
  text     text NOT NULL,
  folded   text NOT NULL,                    -- Title and text in small letters, for searching.
  task_id  bigint,
  root_id  bigint,
  at       bigint NOT NULL
);
CREATE UNIQUE INDEX notes_key ON notes (key);

-- Answers of verbs that have no natural key of their own, so that a repeated call gives the same one.
CREATE TABLE calls (
  key     text PRIMARY KEY,
  verb    text NOT NULL,
  answer  text NOT NULL,
  at      bigint NOT NULL
);

CREATE TABLE events (
  seq      NUMBER_KEY,
  at       bigint NOT NULL,
  kind     text NOT NULL,
  task_id  bigint,
  root_id  bigint,
  actor    text NOT NULL,
  data     text NOT NULL
);
CREATE INDEX events_task ON events (task_id, seq) WHERE task_id IS NOT NULL;

-- One row. On PostgreSQL its lock puts the commits that write to the log in order.
CREATE TABLE head (
  seq           bigint NOT NULL,             -- The last number given out; SQLite needs no counter.
  snapshot_seq  bigint NOT NULL              -- Events up to here were folded into `snapshot` and pruned.
);
INSERT INTO head (seq, snapshot_seq) VALUES (0, 0);

-- The state the pruned part of the log replays to, one row an entity.
CREATE TABLE snapshot (
  entity  text NOT NULL,
  id      text NOT NULL,
  state   text NOT NULL,
  PRIMARY KEY (entity, id)
);
