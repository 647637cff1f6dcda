-- The team's scratchpad.

-- name: insert_note
INSERT INTO notes (key, author, title, text, folded, task_id, root_id, at)
VALUES (:key, :author, :title, :text, :folded, :task, :root, now_ms())
ON CONFLICT (key) DO NOTHING
RETURNING *

-- name: note_by_key
SELECT * FROM notes WHERE key = :key

-- name: search_notes
-- The notes that contain every word; without words, all notes. Newest first.
SELECT * FROM notes
WHERE (CAST(:before AS bigint) IS NULL OR id < :before)
  AND NOT EXISTS (
    SELECT 1 FROM json_each(CAST(:words AS text)) AS word
    WHERE NOT (notes.folded LIKE '%' || (word.value ->> 'like') || '%' ESCAPE '\')
  )
ORDER BY id DESC LIMIT :page

-- name: search_notes_of
-- The same of one goal, and of no goal: those are for everybody. A page of each, and of these the newest.
SELECT * FROM (
  SELECT * FROM (
    SELECT * FROM notes
    WHERE root_id = :root AND (CAST(:before AS bigint) IS NULL OR id < :before)
      AND NOT EXISTS (
        SELECT 1 FROM json_each(CAST(:words AS text)) AS word
        WHERE NOT (notes.folded LIKE '%' || (word.value ->> 'like') || '%' ESCAPE '\')
      )
    ORDER BY id DESC LIMIT :page
  ) AS own
  UNION ALL
  SELECT * FROM (
    SELECT * FROM notes
    WHERE root_id IS NULL AND (CAST(:before AS bigint) IS NULL OR id < :before)
      AND NOT EXISTS (
        SELECT 1 FROM json_each(CAST(:words AS text)) AS word
        WHERE NOT (notes.folded LIKE '%' || (word.value ->> 'like') || '%' ESCAPE '\')
      )
    ORDER BY id DESC LIMIT :page
  ) AS of_everybody
) AS found ORDER BY id DESC LIMIT :page
