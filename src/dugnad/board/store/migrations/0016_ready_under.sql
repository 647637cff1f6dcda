-- Only statements that name some roots take this index. PostgreSQL took it for all others too while it had no statistics
-- of a large board: then each claim read and sorted all ready work. The product is a condition that only they have.

DROP INDEX tasks_ready_under;
CREATE INDEX tasks_ready_under ON tasks (root_id, lane, priority DESC, chain DESC, id)
  WHERE state = 'ready' AND shelved * 1 = 0;
