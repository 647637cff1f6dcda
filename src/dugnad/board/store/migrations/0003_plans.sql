-- Work that begins with a plan someone has to approve; and finding what was asked and said without reading it all.

ALTER TABLE tasks ADD COLUMN plan integer NOT NULL DEFAULT 0;      -- 1: whoever works it may only read until then.
ALTER TABLE teammates ADD COLUMN plan integer NOT NULL DEFAULT 0;  -- 1: that holds for all it works.
CREATE INDEX messages_of_task ON messages (task_id) WHERE kind = 'plan_reply';
CREATE INDEX messages_shutdown ON messages (recipient) WHERE kind = 'shutdown';
CREATE INDEX messages_heard ON messages (recipient, id);
CREATE INDEX messages_said ON messages (sender, id);
