-- Rows: seq, time, kind, feed, identity, error, what else there is to say.
INSERT INTO events (seq, at, kind, feed_id, identity, error, about)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, substr(?2, value ->> 4, value ->> 5),
    CAST(substr(?2, value ->> 6, value ->> 7) AS TEXT), CAST(substr(?2, value ->> 8, value ->> 9) AS TEXT)
FROM jsonb_each(?1)
