-- Feeds after number $2 whose login is not sealed with the key that $1 names, at most $3.
SELECT id, url, sealed
FROM feeds
WHERE sealed IS NOT NULL AND id > $2 AND substr(sealed, 1, length($1)) <> $1
ORDER BY id
LIMIT $3
