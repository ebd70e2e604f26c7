-- The oldest pages that were taken in up to the time $1, at most $2, and whether they carry nothing that a caller gave them, and no
-- feed was merged into them.
SELECT known_pages.feed_id,
       feeds.status = 'merged' AND feeds.subscribers <= 1 AND feeds.active_subscribers <= 1 AND feeds.calm IS NULL
       AND NOT feeds.sla AND NOT feeds.important AND feeds.interval_ms IS NULL
       AND feeds.labels IS NULL AND feeds.external_id IS NULL
       AND NOT EXISTS (SELECT 1 FROM hub_feeds WHERE hub_feeds.feed_id = feeds.id)
       AND NOT EXISTS (SELECT 1 FROM feeds AS merged WHERE merged.merged_into = feeds.id)
FROM known_pages JOIN feeds ON feeds.id = known_pages.feed_id
WHERE known_pages.at <= $1 ORDER BY known_pages.at LIMIT $2
