-- Feed ?1 is feed ?2 under another URL: its readers read that one from now on, at ?3.
UPDATE feeds
SET subscribers        = min(feeds.subscribers + gone.subscribers, 4294967295),
    active_subscribers = min(feeds.active_subscribers + gone.active_subscribers, 4294967295),
    sla                = max(feeds.sla, gone.sla),
    important          = max(feeds.important, gone.important),
    calm               = CASE
        WHEN gone.calm IS NULL THEN feeds.calm
        WHEN feeds.calm IS NULL THEN gone.calm
        ELSE substr(feeds.calm, 1, length(feeds.calm) - 1) || ',' || substr(gone.calm, 2) END,  -- one list after the other
    audience_at        = ?3
FROM (SELECT subscribers, active_subscribers, sla, important, calm FROM feeds WHERE id = ?1) AS gone
WHERE id = ?2
