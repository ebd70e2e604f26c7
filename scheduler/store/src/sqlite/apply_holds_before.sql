-- Each host's hold, and the end of the wait that the server requested of the feed that caused it.
SELECT host, held_until, coalesce((SELECT hold_until FROM feeds WHERE feeds.id = host_holds.feed_id), 0), feed_id
FROM host_holds
WHERE host IN (SELECT CAST(substr(?2, value ->> 0, value ->> 1) AS TEXT) FROM jsonb_each(?1))
