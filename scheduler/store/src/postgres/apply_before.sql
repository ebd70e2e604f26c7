SELECT id, version, category, status, host, audience_at, wake_at, etag, last_modified, validators_url, quota, gap_since
FROM feeds
WHERE id = ANY ($1)
