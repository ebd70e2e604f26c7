-- Page after ?1, at most ?2 feeds.
SELECT id, host, category, CASE WHEN status = 'active' THEN next_due ELSE wake_at END AS next_due, wake_at
FROM feeds
WHERE id > ?1 AND (status = 'active' OR wake_at IS NOT NULL AND status IN ('blacklisted', 'gone'))
ORDER BY id
LIMIT ?2
