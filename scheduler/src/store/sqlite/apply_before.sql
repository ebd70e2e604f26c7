SELECT id, version, category, status, host, audience_at, wake_at, etag, last_modified, validators_url, history
FROM feeds
WHERE id IN (SELECT value FROM json_each(?1))
