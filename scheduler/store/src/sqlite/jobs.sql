SELECT id, version, url, sealed, category,
    CASE WHEN status = 'active' THEN next_due ELSE wake_at END AS next_due, wake_at, etag, last_modified, validators_url, content_hash, known,
    state, subscribers,
    calm, detour, by_hand, archive, (SELECT epochs FROM store WHERE one = 1) AS epochs
FROM feeds
WHERE id IN (SELECT value FROM json_each(?1))
    -- A feed that was retired is polled once after a ping.
    AND (status = 'active' OR wake_at IS NOT NULL AND status IN ('blacklisted', 'gone'))
