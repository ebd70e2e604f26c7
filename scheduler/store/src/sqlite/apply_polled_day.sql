-- Rows: feed, day of its poll. Only feeds of which that changes: it is indexed.
UPDATE feeds
SET polled_day = new.value ->> 1
FROM jsonb_each(?1) AS new
WHERE feeds.id = new.value ->> 0
