-- Whether only the hub wants feed $1.
SELECT EXISTS (SELECT 1 FROM hub_feeds WHERE feed_id = $1)
   AND NOT EXISTS (SELECT 1 FROM feeds WHERE merged_into = $1)
   AND NOT EXISTS (
       SELECT 1 FROM subscriptions
       WHERE (intent IS NULL OR NOT coalesce((intent::json ->> 'is_first')::boolean, false))
         AND ((filter::json ->> 'feed')::bigint = $1 OR (filter::json ->> 'feed')::bigint = (SELECT merged_into FROM feeds WHERE id = $1)))
