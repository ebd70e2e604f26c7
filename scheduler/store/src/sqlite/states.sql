SELECT
    id, url, sealed, host, added, status, subscribers, active_subscribers, sla, important, interval_ms, audience_at, calm, private, labels, external_id, version, next_due,
    wake_at, hold_until, etag, last_modified, validators_url, content_hash, title, entries, moved_from, onward,
    merged_into, state, rhythm, terms, quota, last_error, also_announced
FROM feeds
WHERE id IN (SELECT value FROM json_each(?1))
