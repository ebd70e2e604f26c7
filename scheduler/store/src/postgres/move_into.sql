-- Feed $1 is feed $2 under another URL: its readers read that one from now on, at $3.
UPDATE feeds
SET subscribers        = least(feeds.subscribers + gone.subscribers, 4294967295),
    active_subscribers = least(feeds.active_subscribers + gone.active_subscribers, 4294967295),
    sla                = feeds.sla OR gone.sla,
    important          = feeds.important OR gone.important,
    calm               = CASE
        WHEN gone.calm IS NULL THEN feeds.calm
        WHEN feeds.calm IS NULL THEN gone.calm
        ELSE left(feeds.calm, -1) || ',' || substr(gone.calm, 2) END,  -- one list after the other
    audience_at        = $3
FROM (SELECT subscribers, active_subscribers, sla, important, calm FROM feeds WHERE id = $1) AS gone
WHERE id = $2
