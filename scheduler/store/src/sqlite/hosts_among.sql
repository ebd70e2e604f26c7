-- What is known of the hosts with these names (JSON list ?1), at the time ?2.
SELECT value AS host,
       coalesce((SELECT feeds FROM feed_counts WHERE kind = 'host' AND name = value), 0) AS feeds,
       (SELECT held_until FROM host_holds WHERE host = value AND held_until > ?2) AS held,
       (SELECT blocked_until FROM host_blocks WHERE host = value AND blocked_until > ?2) AS blocked
FROM json_each(?1)
