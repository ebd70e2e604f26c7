-- What is known of the hosts with these names, at the time $2.
SELECT wanted.name AS host,
       CAST(coalesce((SELECT feeds FROM feed_counts WHERE kind = 'host' AND name = wanted.name), 0)
            + coalesce((SELECT sum(feeds) FROM feed_count_changes WHERE kind = 'host' AND name = wanted.name), 0) AS bigint) AS feeds,
       (SELECT held_until FROM host_holds WHERE host = wanted.name AND held_until > $2) AS held,
       (SELECT blocked_until FROM host_blocks WHERE host = wanted.name AND blocked_until > $2) AS blocked
FROM UNNEST($1::text[]) AS wanted (name)
