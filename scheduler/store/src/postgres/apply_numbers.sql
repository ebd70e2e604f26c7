-- Takes $1 numbers for events, and counts $2 further entries; gives the last number before them. From here on every other
-- transaction that has something to tell waits until this one ends.
UPDATE store SET seq = seq + $1, entries = entries + $2 RETURNING seq - $1
