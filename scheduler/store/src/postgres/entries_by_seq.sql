SELECT seq, feed_id, seen, published, updated, cut, id, url, title, author, enclosures, summary, content, details
FROM entries
WHERE seq = ANY ($1)
