-- Live feeds of category A whose next poll comes more than ?1 milliseconds after the last one. Feeds whose pushes were reliable at that
-- poll (FeedPush::spares_polls; ?2 in a row were announced) are left out: they are polled less often because their entries are pushed.
SELECT count(*)
FROM feeds
WHERE category = 'A'
  AND status = 'active'
  AND next_due - 1000 * unixepoch(json_extract(feeds.state, '$.last_polled'), 'subsec') > ?1
  AND NOT EXISTS (
      SELECT 1
      FROM push_subscriptions AS p
      WHERE p.feed_id = feeds.id
        AND p.state <> 'unsubscribing' -- for the index push_of_feed
        AND p.state = 'verified'
        AND p.announced >= ?2
        AND p.lease_until > 1000 * unixepoch(json_extract(feeds.state, '$.last_polled'), 'subsec')
  )
