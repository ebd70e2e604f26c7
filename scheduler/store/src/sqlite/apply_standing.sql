-- Rows: feed, category, status, host, next due. Only feeds of which one of the first three changes: they are indexed.
UPDATE feeds
SET category = CAST(substr(?2, new.value ->> 1, new.value ->> 2) AS TEXT),
    status   = new.value ->> 3,
    host     = CAST(substr(?2, new.value ->> 4, new.value ->> 5) AS TEXT),
    next_due = new.value ->> 6
FROM jsonb_each(?1) AS new
WHERE feeds.id = new.value ->> 0
