-- Hosts with names from $1 to $2 and before $3, in reverse, at most $5, at the time $4. Each part gives as many as the whole may, so that no
-- part is read to its end.
SELECT host, CAST(sum(feeds) AS bigint) AS feeds, max(held) AS held, max(blocked) AS blocked
FROM (
    SELECT * FROM (
        SELECT name AS host, feeds, NULL::bigint AS held, NULL::bigint AS blocked FROM feed_counts
        WHERE kind = 'host' AND name >= $1 AND name <= $2 AND name < $3 ORDER BY name DESC LIMIT $5
    ) AS with_feeds
    UNION ALL
    -- Not added up as yet, and few: of a host that is gone they make none.
    SELECT name AS host, feeds, NULL::bigint AS held, NULL::bigint AS blocked FROM feed_count_changes
    WHERE kind = 'host' AND name >= $1 AND name <= $2 AND name < $3
    UNION ALL
    SELECT * FROM (
        SELECT host, 0::bigint AS feeds, held_until AS held, NULL::bigint AS blocked FROM host_holds
        WHERE host >= $1 AND host <= $2 AND host < $3 AND held_until > $4 ORDER BY host DESC LIMIT $5
    ) AS held
    UNION ALL
    SELECT * FROM (
        SELECT host, 0::bigint AS feeds, NULL::bigint AS held, blocked_until AS blocked FROM host_blocks
        WHERE host >= $1 AND host <= $2 AND host < $3 AND blocked_until > $4 ORDER BY host DESC LIMIT $5
    ) AS blocked
    UNION ALL
    SELECT * FROM (
        SELECT listed AS host, 0::bigint AS feeds, NULL::bigint AS held, NULL::bigint AS blocked FROM host_rules
        WHERE listed >= $1 AND listed <= $2 AND listed < $3 ORDER BY listed DESC LIMIT $5
    ) AS with_rules
) AS known
GROUP BY host
ORDER BY host DESC
LIMIT $5
