-- Feed $1, the feed that it was merged into, and the feed that has its previous URL and credentials, locked in the order of their
-- ids: whether it is feed $1 of version $2, into which it was merged, whether it moved, and its calm groups.
SELECT id, id = $1 AND version = $2, merged_into, moved_from IS NOT NULL, calm
FROM feeds
WHERE id = $1
   OR id = (SELECT merged_into FROM feeds WHERE id = $1)
   OR (url_digest, credentials) = (SELECT sha256(convert_to(moved_from, 'UTF8')), credentials FROM feeds WHERE id = $1)
ORDER BY id
FOR NO KEY UPDATE
