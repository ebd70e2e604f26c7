-- What the store has of each entry, by its place in the lists; seen is null where retention took the entry.
SELECT new.number - 1, known.seq, known.fingerprint, entries.seen
FROM UNNEST($1::bigint[], $2::bytea[]) WITH ORDINALITY AS new (feed_id, identity, number)
JOIN entry_identities AS known ON known.feed_id = new.feed_id AND known.identity = new.identity
LEFT JOIN entries ON entries.seq = known.seq
