-- Restarts feed ?1 at URL ?2 on host ?3 in category ?4, due at ?5 by terms ?6. Only its history keeps its past.
UPDATE feeds
SET moved_from = url, url = ?2, host = ?3, category = ?4, version = version + 1, next_due = ?5, terms = ?6,
    wake_at = NULL, hold_until = NULL, failure = NULL, penalty = NULL, last_error = NULL, state = '{}', rhythm = x'', known = x'',
    etag = NULL, last_modified = NULL, validators_url = NULL, content_hash = NULL,
    title = NULL, link = NULL, hub = NULL, self_link = NULL, cloud = NULL, onward = NULL
WHERE id = ?1
