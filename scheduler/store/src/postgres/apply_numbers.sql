-- Takes $1 numbers for events, and counts $2 further entries; returns the last number before them. From here on every
-- other transaction that has events waits until this one ends.
UPDATE store SET seq = seq + $1, entries = entries + $2 RETURNING seq - $1
