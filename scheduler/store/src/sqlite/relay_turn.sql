-- Takes or keeps the turn for ?1 for ?2 ms, if it is its own or over, and moves the cursor on to ?3 if
-- that is of this epoch, ?4; gives the cursor. By the
-- database's clock, as in PostgreSQL.
UPDATE relay
SET holder = ?1, until = CAST(1000 * unixepoch('subsec') AS INTEGER) + ?2,
    cursor = min(CASE WHEN (SELECT epoch FROM store) = ?4 THEN max(cursor, ?3) ELSE cursor END,
                 coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0))
WHERE holder = ?1 OR until <= CAST(1000 * unixepoch('subsec') AS INTEGER)
RETURNING cursor
