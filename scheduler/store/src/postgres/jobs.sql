SELECT id, version, url, sealed, category, next_due, wake_at, etag, last_modified, validators_url, content_hash, known,
    CASE WHEN strpos(state, '"head_first"') > 0 OR strpos(state, '"no_delta_until"') > 0 THEN state END AS state, subscribers,
    detour, by_hand
FROM feeds
WHERE id = ANY ($1) AND status = 'active'
