-- Feed ?1 is no longer feed ?2 under another URL: that one has its own readers again, and calm groups ?4, from ?3 on, if it had those of both.
UPDATE feeds
SET subscribers        = max(feeds.subscribers - gone.subscribers, 0),
    active_subscribers = max(feeds.active_subscribers - gone.active_subscribers, 0),
    calm               = ?4,
    audience_at        = ?3
FROM (SELECT subscribers, active_subscribers FROM feeds WHERE id = ?1 AND NOT uncounted) AS gone
WHERE id = ?2
