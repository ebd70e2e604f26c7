-- Feeds of the hub: those that can be released and were added before ?1, and those whose subscribers are to be counted.
WITH counts AS (
    SELECT json_extract(filter, '$.feed') AS feed, count(*) AS number
    FROM subscriptions
    WHERE (intent IS NULL OR NOT coalesce(json_extract(intent, '$.is_first'), 0))
    GROUP BY 1
)
SELECT feeds.id, coalesce(own.number, 0)
FROM hub_feeds
JOIN feeds ON feeds.id = hub_feeds.feed_id
LEFT JOIN counts AS own ON own.feed = feeds.id
LEFT JOIN counts AS other ON other.feed = feeds.merged_into
WHERE CASE
    WHEN own.number IS NULL AND other.number IS NULL
        THEN hub_feeds.added <= ?1 AND NOT EXISTS (SELECT 1 FROM feeds AS merged WHERE merged.merged_into = feeds.id)
    ELSE feeds.status <> 'merged' AND own.number <> feeds.subscribers END
LIMIT 500
