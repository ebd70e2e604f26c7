-- Whether only the hub wants feed ?1.
SELECT EXISTS (SELECT 1 FROM hub_feeds WHERE feed_id = ?1)
   AND NOT EXISTS (SELECT 1 FROM feeds WHERE merged_into = ?1)
   AND NOT EXISTS (
       SELECT 1 FROM subscriptions
       WHERE (intent IS NULL OR NOT coalesce(json_extract(intent, '$.is_first'), 0))
         AND (json_extract(filter, '$.feed') = ?1 OR json_extract(filter, '$.feed') = (SELECT merged_into FROM feeds WHERE id = ?1)))
