-- Deletes the oldest events, at most $2, up to the first that is not older than $1.
WITH oldest AS MATERIALIZED (SELECT seq, at FROM events ORDER BY seq LIMIT $2)
DELETE FROM events
WHERE seq <= (SELECT max(seq) FROM oldest
              WHERE seq < coalesce((SELECT min(seq) FROM oldest WHERE at >= $1), 9223372036854775807))
RETURNING seq
