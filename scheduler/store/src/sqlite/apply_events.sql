-- Rows: seq, time, kind, feed, identity.
INSERT INTO events (seq, at, kind, feed_id, identity)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, substr(?2, value ->> 4, value ->> 5)
FROM jsonb_each(?1)
