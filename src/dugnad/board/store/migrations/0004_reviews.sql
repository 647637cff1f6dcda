-- Work that counts only when another approves of it, that is for anybody but one, or that needs the network.

ALTER TABLE tasks ADD COLUMN review text;   -- The role whose approval it asks for; NULL: none.
ALTER TABLE tasks ADD COLUMN network integer NOT NULL DEFAULT 0;  -- 1: its commands reach the hosts a person allowed.
ALTER TABLE tasks ADD COLUMN not_for text;  -- The teammate who must not claim it; NULL: whoever has its lane may.
-- What is ready for anybody but one, for a look at who is missing; next to nothing is in it.
CREATE INDEX tasks_not_for ON tasks (lane, not_for) WHERE state = 'ready' AND shelved = 0 AND not_for IS NOT NULL;
