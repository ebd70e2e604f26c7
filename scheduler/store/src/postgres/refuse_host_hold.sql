-- The same rest as a hold, which a host gate that lost its memory is given.
INSERT INTO host_holds (host, held_until, feed_id) VALUES ($1, $2, $3)
ON CONFLICT (host) DO UPDATE
SET held_until = greatest(host_holds.held_until, excluded.held_until), feed_id = excluded.feed_id
