-- The last of the oldest ?2 entries that, like all before it, got its newest form before ?1.
WITH oldest AS MATERIALIZED (SELECT seq, stored FROM entries ORDER BY seq LIMIT ?2)
SELECT max(seq) FROM oldest
WHERE seq < coalesce((SELECT min(seq) FROM oldest WHERE stored >= ?1), 9223372036854775807)
