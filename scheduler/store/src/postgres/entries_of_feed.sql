-- Entries of feed $3 after $1, at most $2.
SELECT seq, feed_id, seen, published, updated, cut, id, url, title, author, enclosures, summary, content, details
FROM entries
WHERE feed_id = $3 AND seq > $1
ORDER BY seq
LIMIT $2
