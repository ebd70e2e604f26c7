-- Rows: feed, next due, wake, hold, failure, penalty, state, rhythm, terms, poll, error, gap, silence, archive. Every applied report. The history keeps ?3 bytes of
-- earlier polls. `||` makes a text even of two blobs, byte for byte, hence the cast; `substr` of an empty blob is NULL.
UPDATE feeds
SET version    = version + 1,
    next_due   = new.value ->> 1,
    wake_at    = new.value ->> 2,
    hold_until = new.value ->> 3,
    failure    = new.value ->> 4,
    penalty    = new.value ->> 5,
    state      = CAST(substr(?2, new.value ->> 6, new.value ->> 7) AS TEXT),
    rhythm     = substr(?2, new.value ->> 8, new.value ->> 9),
    terms      = substr(?2, new.value ->> 10, new.value ->> 11),
    last_error = CAST(substr(?2, new.value ->> 14, new.value ->> 15) AS TEXT),
    gap_since  = new.value ->> 16,
    silent_since = new.value ->> 17,
    archive    = CAST(substr(?2, new.value ->> 18, new.value ->> 19) AS TEXT),
    history    = CAST(substr(?2, new.value ->> 12, new.value ->> 13) || coalesce(substr(history, 1, ?3), x'') AS BLOB)
FROM jsonb_each(?1) AS new
WHERE feeds.id = new.value ->> 0
