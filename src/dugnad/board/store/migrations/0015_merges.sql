-- Hosts with clones of their own take turns to merge. The line is made of the claims that merge or wait for it.

ALTER TABLE attempts ADD COLUMN merges_into text;
ALTER TABLE attempts ADD COLUMN merge_place bigint;
