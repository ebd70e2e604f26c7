-- The last of the oldest ?2 events that, like all before it, is older than ?1.
WITH oldest AS MATERIALIZED (SELECT seq, at FROM events ORDER BY seq LIMIT ?2)
SELECT max(seq) FROM oldest
WHERE seq < coalesce((SELECT min(seq) FROM oldest WHERE at >= ?1), 9223372036854775807)
