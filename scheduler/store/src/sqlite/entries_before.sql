-- Rows: feed, identity. What the store has of each, by the row's number; seen is null where retention took the entry.
SELECT new.key, known.seq, known.fingerprint, entries.seen
FROM jsonb_each(?1) AS new
CROSS JOIN entry_identities AS known
    ON known.feed_id = new.value ->> 0 AND known.identity = substr(?2, new.value ->> 1, new.value ->> 2)
LEFT JOIN entries ON entries.seq = known.seq
