-- Takes or keeps the turn for ?1 for ?2 ms, if ?1 has it or it has expired, and advances the cursor to ?3 if that is of
-- this epoch, ?4. Returns the cursor. Uses the database's clock, as in PostgreSQL.
UPDATE relay
SET holder = ?1, until = CAST(1000 * unixepoch('subsec') AS INTEGER) + ?2,
    cursor = min(CASE WHEN (SELECT epoch FROM store) = ?4 THEN max(cursor, ?3) ELSE cursor END,
                 coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0))
WHERE holder = ?1 OR until <= CAST(1000 * unixepoch('subsec') AS INTEGER)
RETURNING cursor
