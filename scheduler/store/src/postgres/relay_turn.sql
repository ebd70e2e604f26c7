-- Takes or keeps the turn for $1 for $2 ms, if $1 has it or it has expired, and advances the cursor to $3 if that is of
-- this epoch, $4: a history that continued elsewhere has other numbers. Returns the cursor. Uses the database's clock:
-- a process whose own is ahead would otherwise keep the others out for as long.
UPDATE relay
SET holder = $1, until = floor(1000 * extract(epoch FROM clock_timestamp()))::bigint + $2,
    cursor = least(CASE WHEN store.epoch = $4 THEN greatest(cursor, $3) ELSE cursor END, store.seq)
FROM store
WHERE holder = $1 OR until <= floor(1000 * extract(epoch FROM clock_timestamp()))::bigint
RETURNING cursor
