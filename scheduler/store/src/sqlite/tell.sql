-- Rows: kind, feed, what else the event says. ?3 time.
INSERT INTO events (at, kind, feed_id, about)
SELECT ?3, value ->> 0, value ->> 1, CAST(substr(?2, value ->> 2, value ->> 3) AS TEXT)
FROM jsonb_each(?1)
ORDER BY key
