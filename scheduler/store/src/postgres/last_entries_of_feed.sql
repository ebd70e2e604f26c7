-- The newest entries of feed $1, at most $2.
SELECT seq, feed_id, seen, published, updated, cut, id, url, title, author, enclosures, summary, content, details
FROM entries
WHERE feed_id = $1
ORDER BY seq DESC
LIMIT $2
