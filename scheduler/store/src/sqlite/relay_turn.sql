-- Takes or keeps the turn for ?1 for ?2 ms, if it is its own or over, and moves the cursor on to ?3; gives the cursor. By the
-- database's clock, as in PostgreSQL.
UPDATE relay
SET holder = ?1, until = CAST(1000 * unixepoch('subsec') AS INTEGER) + ?2, cursor = max(cursor, ?3)
WHERE holder = ?1 OR until <= CAST(1000 * unixepoch('subsec') AS INTEGER)
RETURNING cursor
