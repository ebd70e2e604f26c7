SELECT id, version, category, status, host, audience_at, wake_at, etag, last_modified, validators_url, quota
FROM feeds
WHERE id = ANY ($1)
