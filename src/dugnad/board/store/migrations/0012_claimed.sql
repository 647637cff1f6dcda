-- What each teammate holds is found by name, however many claims its host has.

DROP INDEX tasks_claimed;
CREATE INDEX tasks_claimed ON tasks (host_id, teammate) WHERE state = 'claimed';
