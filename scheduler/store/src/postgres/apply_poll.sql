-- Applies reports, sorted by feed, so that two batches lock rows in the same order. A row that has changed since it was read is
-- not updated; category, status and host are null if they do not change. The history keeps $18 bytes of earlier polls.
UPDATE feeds
SET version    = feeds.version + 1,
    category   = coalesce(new.category, feeds.category),
    status     = coalesce(new.status, feeds.status),
    host       = coalesce(new.host, feeds.host),
    next_due   = new.next_due,
    wake_at    = new.wake_at,
    hold_until = new.hold_until,
    failure    = new.failure,
    penalty    = new.penalty,
    state      = new.state,
    rhythm     = new.rhythm,
    terms      = new.terms,
    last_error = new.error,
    gap_since  = new.gap_since,
    silent_since = new.silent_since,
    archive    = new.archive,
    polled_day = new.polled_day,
    history    = new.poll || substr(feeds.history, 1, $18)
FROM UNNEST(
        $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[],
        $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::bytea[], $15::bytea[], $16::bytea[],
        $17::text[], $19::bigint[], $20::bigint[], $21::text[],
        $22::bigint[])
    AS new (
        id, version, audience_at, woken_before, category, status, host, next_due,
        wake_at, hold_until, failure, penalty, state, rhythm, terms, poll, error, gap_since, silent_since, archive,
        polled_day)
WHERE feeds.id = new.id
  AND feeds.version = new.version
  AND feeds.audience_at = new.audience_at
  AND feeds.wake_at IS NOT DISTINCT FROM new.woken_before
