SELECT host, held_until, feed_id
FROM host_holds
WHERE host IN (SELECT CAST(substr(?2, value ->> 0, value ->> 1) AS TEXT) FROM jsonb_each(?1))
