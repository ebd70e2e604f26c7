-- Rows: feed, next due, wake, hold, failure, penalty, state, terms, history. Every applied report.
UPDATE feeds
SET version    = version + 1,
    next_due   = new.value ->> 1,
    wake_at    = new.value ->> 2,
    hold_until = new.value ->> 3,
    failure    = new.value ->> 4,
    penalty    = new.value ->> 5,
    state      = CAST(substr(?2, new.value ->> 6, new.value ->> 7) AS TEXT),
    terms      = substr(?2, new.value ->> 8, new.value ->> 9),
    history    = substr(?2, new.value ->> 10, new.value ->> 11)
FROM jsonb_each(?1) AS new
WHERE feeds.id = new.value ->> 0
