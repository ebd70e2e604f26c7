-- Restarts feed ?1 at URL ?2 on host ?3 in category ?4, due at ?5 by terms ?6. Only its history keeps its past, and
-- on the same host its server's hold.
UPDATE feeds
SET moved_from = url, url = ?2, host = ?3, category = ?4, version = version + 1,
    next_due = max(?5, CASE WHEN host = ?3 THEN coalesce(hold_until, 0) ELSE 0 END),
    terms = ?6, hold_until = CASE WHEN host = ?3 THEN hold_until END,
    wake_at = NULL, failure = NULL, penalty = NULL, last_error = NULL, state = '{}', rhythm = x'', known = x'',
    etag = NULL, last_modified = NULL, validators_url = NULL, content_hash = NULL,
    title = NULL, link = NULL, hub = NULL, self_link = NULL, cloud = NULL, onward = NULL
WHERE id = ?1
