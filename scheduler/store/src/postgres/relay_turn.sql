-- Takes or keeps the turn for $1 for $2 ms, if it is its own or over, and moves the cursor on to $3; gives the cursor. By the
-- database's clock: a process whose own is ahead would otherwise keep the others out for as long.
UPDATE relay
SET holder = $1, until = floor(1000 * extract(epoch FROM clock_timestamp()))::bigint + $2, cursor = greatest(cursor, $3)
WHERE holder = $1 OR until <= floor(1000 * extract(epoch FROM clock_timestamp()))::bigint
RETURNING cursor
