-- Locks the feeds that have entries up to $1, in the order of their numbers.
SELECT id
FROM feeds
WHERE id IN (SELECT feed_id FROM entries WHERE seq <= $1)
ORDER BY id
FOR NO KEY UPDATE
