SELECT id, version, url, sealed, category, next_due, wake_at, etag, last_modified, validators_url, content_hash, known, subscribers
FROM feeds
WHERE id = ANY ($1) AND status = 'active'
