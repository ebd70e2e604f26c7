-- The hosts' holds, locked, also of hosts that had none: they have one that ended in 1970. With each, the end of the
-- wait that the server requested of the feed that caused it.
INSERT INTO host_holds (host, held_until, feed_id)
SELECT host, 0, 0
FROM UNNEST($1::text[]) AS new (host)
ON CONFLICT (host) DO UPDATE SET held_until = host_holds.held_until
RETURNING host, held_until, coalesce((SELECT hold_until FROM feeds WHERE feeds.id = host_holds.feed_id), 0), feed_id
