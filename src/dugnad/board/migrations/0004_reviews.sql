-- Work that counts only when another approves of it, and work that is for anybody but one.

ALTER TABLE tasks ADD COLUMN review text;   -- The role whose approval it asks for; NULL: none.
ALTER TABLE tasks ADD COLUMN not_for text;  -- The teammate who must not claim it; NULL: whoever has its lane may.
-- What is ready for anybody but one, for a look at who is missing; next to nothing is in it.
CREATE INDEX tasks_not_for ON tasks (lane, not_for) WHERE state = 'ready' AND shelved = 0 AND not_for IS NOT NULL;
