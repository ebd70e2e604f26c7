-- Locks the feeds that have entries up to $1, of which there are at most $2, in the order of their numbers.
SELECT id
FROM feeds
WHERE id = ANY (ARRAY(SELECT feed_id FROM entries WHERE seq <= $1 ORDER BY seq LIMIT $2))
ORDER BY id
FOR NO KEY UPDATE
