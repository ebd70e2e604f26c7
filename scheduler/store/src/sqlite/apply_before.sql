-- One row for the whole batch: passing a row of a result between two threads costs more than reading it in the
-- database.
SELECT json_group_array(json_array(
    id, version, category, status, host, audience_at, wake_at, etag, last_modified, validators_url, quota, gap_since, polled_day,
    coalesce(wake_at, hold_until, failure, penalty, last_error, gap_since, silent_since, archive) IS NOT NULL))
FROM feeds
WHERE id IN (SELECT value FROM json_each(?1))
