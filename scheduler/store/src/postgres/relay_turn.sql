-- Takes or keeps the turn for $1 until $2, if it is its own or over at $3, and moves the cursor on to $4; gives the cursor.
UPDATE relay SET holder = $1, until = $2, cursor = greatest(cursor, $4)
WHERE holder = $1 OR until <= $3
RETURNING cursor
