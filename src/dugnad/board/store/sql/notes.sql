-- The team's scratchpad.

-- name: insert_note
INSERT INTO notes (key, author, title, text, folded, task_id, root_id, at)
VALUES (:key, :author, :title, :text, :folded, :task, :root, now_ms())
ON CONFLICT (key) DO NOTHING
RETURNING *

-- name: note_by_key
SELECT * FROM notes WHERE key = :key

-- name: read_note
SELECT * FROM notes WHERE id = :id

-- name: search_notes
-- The notes that contain every word; without words, all notes. Newest first. With a root, only the notes of that goal
-- and those of no goal, which are for everybody.
SELECT * FROM notes
WHERE (CAST(:before AS bigint) IS NULL OR id < :before)
  AND (CAST(:root AS bigint) IS NULL OR root_id IS NULL OR root_id = :root)
  AND NOT EXISTS (
    SELECT 1 FROM json_each(CAST(:words AS text)) AS word
    WHERE NOT (notes.folded LIKE '%' || (word.value ->> 'like') || '%' ESCAPE '\')
  )
ORDER BY id DESC LIMIT :page
