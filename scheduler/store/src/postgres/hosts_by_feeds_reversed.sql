-- Hosts with feeds, those with the fewest first, after one with $1 feeds and the name $2; at most $3, at the time $4. What was not
-- added up as yet is left out.
SELECT name AS host, feeds,
       (SELECT held_until FROM host_holds WHERE host = name AND held_until > $4) AS held,
       (SELECT blocked_until FROM host_blocks WHERE host = name AND blocked_until > $4) AS blocked
FROM (
    SELECT * FROM (
        SELECT name, feeds FROM feed_counts
        WHERE kind = 'host' AND feeds = $1 AND name < $2 ORDER BY name DESC LIMIT $3
    ) AS with_as_many
    UNION ALL
    SELECT * FROM (
        SELECT name, feeds FROM feed_counts WHERE kind = 'host' AND feeds > $1 ORDER BY feeds, name DESC LIMIT $3
    ) AS with_more
) AS known
ORDER BY feeds, name DESC
LIMIT $3
