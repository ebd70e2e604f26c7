SELECT id, version, url, sealed, category, next_due, wake_at, etag, last_modified, validators_url, content_hash, known,
    CASE WHEN instr(state, '"head_first"') > 0 OR instr(state, '"no_delta_until"') > 0 THEN state END AS state, subscribers,
    detour, by_hand
FROM feeds
WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'active'
