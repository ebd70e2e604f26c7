-- Rows: host, held until, the feed that was throttled.
INSERT INTO host_holds (host, held_until, feed_id)
SELECT CAST(substr(?2, value ->> 0, value ->> 1) AS TEXT), value ->> 2, value ->> 3
FROM jsonb_each(?1)
WHERE true
ON CONFLICT (host) DO UPDATE SET held_until = excluded.held_until, feed_id = excluded.feed_id
