-- Conversations that go on from task to task.

ALTER TABLE teammates ADD COLUMN keep_context integer NOT NULL DEFAULT 0;  -- 1: it keeps one conversation for all tasks.
ALTER TABLE attempts ADD COLUMN context text;    -- The conversation that the attempt is a part of; NULL: its task's own.
ALTER TABLE attempts ADD COLUMN follows bigint;  -- The task whose conversation it goes on from; NULL: it begins anew.
CREATE INDEX attempts_context ON attempts (context, ended_at) WHERE context IS NOT NULL;
