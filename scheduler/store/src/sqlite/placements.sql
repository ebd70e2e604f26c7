-- Page after ?1, at most ?2 feeds.
SELECT id, host, category, next_due, wake_at
FROM feeds
WHERE id > ?1 AND status = 'active'
ORDER BY id
LIMIT ?2
