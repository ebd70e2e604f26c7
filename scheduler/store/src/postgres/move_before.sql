-- Feed $1 and the feed that has the URL $3 with its credentials, locked in the order of their ids: whether it is feed $1, live
-- and of version $2, whether it has that URL, which one it has, and its login's name.
SELECT
    id,
    id = $1 AND version = $2 AND status = 'active',
    url_digest = sha256(convert_to($3, 'UTF8')),
    url,
    credentials
FROM feeds
WHERE id = $1
   OR (url_digest = sha256(convert_to($3, 'UTF8')) AND credentials = (SELECT credentials FROM feeds WHERE id = $1))
ORDER BY id
FOR NO KEY UPDATE
