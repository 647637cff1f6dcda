-- Cool-downs of provider keys, and what is needed to count how fast the team uses a key.

CREATE TABLE cooldowns (
  key           text PRIMARY KEY,            -- A provider key's label.
  until         bigint NOT NULL,
  milliseconds  bigint NOT NULL,             -- How long it was asked for last.
  strikes       integer NOT NULL,
  reason        text NOT NULL
);

ALTER TABLE reservations ADD COLUMN pace text;           -- The provider key's label; NULL: none was named.
ALTER TABLE reservations ADD COLUMN reserved_at bigint;  -- NULL: before this column was there.
ALTER TABLE reservations ADD COLUMN tokens_used bigint;  -- NULL: not settled yet.
-- The last minute of a key is read from its end.
CREATE INDEX reservations_pace ON reservations (pace, reserved_at) WHERE pace IS NOT NULL;
