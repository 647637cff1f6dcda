-- How many tasks are blocked is counted without reading all tasks. Claiming and settling do not touch this index.

CREATE INDEX tasks_blocked ON tasks (id) WHERE state = 'blocked';
