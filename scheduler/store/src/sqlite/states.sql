SELECT
    id, url, sealed, host, added, status, category, subscribers, active_subscribers, sla, important, interval_ms, audience_at, calm, private, labels, external_id, version, next_due,
    wake_at, hold_until, etag, last_modified, validators_url, content_hash, title, entries, moved_from, onward,
    merged_into, state, rhythm, terms, quota, last_error, also_announced, archive,
    (SELECT p.kind || ' ' || p.state || ' ' || coalesce(p.lease_until, -1) || ' ' || p.announced || ' ' || p.missed || ' ' ||
         p.deliveries || ' ' || coalesce(p.heard_at, -1) || ' ' || coalesce(p.light_at, -1) || ' ' || p.topic || ' ' || p.hub
     FROM push_subscriptions AS p WHERE p.feed_id = feeds.id AND p.state <> 'unsubscribing') AS push
FROM feeds
WHERE id IN (SELECT value FROM json_each(?1))
