-- Rows: feed, wake, hold, failure, penalty, error, gap, silence, archive. Only feeds that have one of these or had one: most of them
-- are indexed, or counted by triggers.
UPDATE feeds
SET wake_at    = new.value ->> 1,
    hold_until = new.value ->> 2,
    failure    = new.value ->> 3,
    penalty    = new.value ->> 4,
    last_error = CAST(substr(?2, new.value ->> 5, new.value ->> 6) AS TEXT),
    gap_since  = new.value ->> 7,
    silent_since = new.value ->> 8,
    archive    = CAST(substr(?2, new.value ->> 9, new.value ->> 10) AS TEXT)
FROM jsonb_each(?1) AS new
WHERE feeds.id = new.value ->> 0
