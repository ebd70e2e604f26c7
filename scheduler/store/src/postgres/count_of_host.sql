-- Feeds of host $1.
SELECT coalesce((SELECT feeds FROM feed_counts WHERE kind = 'host' AND name = $1), 0)
     + coalesce((SELECT sum(feeds) FROM feed_count_changes WHERE kind = 'host' AND name = $1), 0)::bigint
