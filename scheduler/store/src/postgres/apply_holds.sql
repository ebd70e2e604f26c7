UPDATE host_holds
SET held_until = new.held_until, feed_id = new.feed_id
FROM UNNEST($1::text[], $2::bigint[], $3::bigint[]) AS new (host, held_until, feed_id)
WHERE host_holds.host = new.host
