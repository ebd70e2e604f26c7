-- Adds at most $1 changes to the counters. The caller holds the lock of URLs, like a caller that adds feeds.
WITH first AS MATERIALIZED (
    SELECT ctid FROM feed_count_changes LIMIT $1
), gone AS (
    DELETE FROM feed_count_changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM first)) RETURNING kind, name, feeds
)
INSERT INTO feed_counts (kind, name, feeds)
SELECT kind, name, sum(feeds) FROM gone GROUP BY kind, name ORDER BY kind, name
ON CONFLICT (kind, name) DO UPDATE SET feeds = feed_counts.feeds + excluded.feeds
RETURNING kind, name, feeds
