-- A name that no other board has. By it a board is known again by whoever made or accepted it.

CREATE TABLE identity (id text NOT NULL);
-- sqlite only
INSERT INTO identity (id) VALUES (lower(hex(randomblob(16))));
-- postgres only
INSERT INTO identity (id) VALUES (replace(CAST(gen_random_uuid() AS text), '-', ''));
