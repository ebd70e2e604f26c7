-- Every applied report. Rows: feed; version, audience, wake and day of the last poll as they were, 0 if it had nothing rare; next due,
-- state, rhythm, terms, poll. A row that is not as it was is not updated. As values, and not as JSON (batch.rs): every poll crosses
-- here. The first parameter is the number of bytes of earlier polls that the history keeps. `||` makes a text even of two blobs, byte for byte, hence
-- the cast.
UPDATE feeds
SET version    = version + 1,
    next_due   = new.column7,
    state      = new.column8,
    rhythm     = new.column9,
    terms      = new.column10,
    history    = CAST(new.column11 || coalesce(substr(history, 1, ?), x'') AS BLOB)
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) AS new
WHERE feeds.id = new.column1
  AND version = new.column2
  AND audience_at = new.column3
  AND wake_at IS new.column4
  AND polled_day = new.column5
  AND (coalesce(wake_at, hold_until, failure, penalty, last_error, gap_since, silent_since, archive) IS NOT NULL) <= new.column6
