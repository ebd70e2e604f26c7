-- The newest entries of all feeds, at most $1.
SELECT seq, feed_id, seen, published, updated, cut, id, url, title, author, enclosures, summary, content, details
FROM entries
ORDER BY seq DESC
LIMIT $1
