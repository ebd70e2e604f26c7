-- Rows: feed, next due, state, rhythm, terms, poll. Every applied report. The history keeps ?3 bytes of earlier polls. `||` makes a
-- text even of two blobs, byte for byte, hence the cast; `substr` of an empty blob is NULL.
UPDATE feeds
SET version    = version + 1,
    next_due   = new.value ->> 1,
    state      = CAST(substr(?2, new.value ->> 2, new.value ->> 3) AS TEXT),
    rhythm     = substr(?2, new.value ->> 4, new.value ->> 5),
    terms      = substr(?2, new.value ->> 6, new.value ->> 7),
    history    = CAST(substr(?2, new.value ->> 8, new.value ->> 9) || coalesce(substr(history, 1, ?3), x'') AS BLOB)
FROM jsonb_each(?1) AS new
WHERE feeds.id = new.value ->> 0
