-- Feed $1, and the feed that has the URL $3 with its credentials, or into which that one was merged by at most $4 merges, locked in the
-- order of their ids: whether it is feed $1, live and of version $2, whether it is the one at that URL, whether it is merged all the
-- same, its URL, and its login's name. Feeds are merged under the lock of URLs, so that those in between need no lock.
WITH RECURSIVE there AS (
    SELECT id, status, merged_into, credentials, 0 AS merges
    FROM feeds
    WHERE url_digest = sha256(convert_to($3, 'UTF8')) AND credentials = (SELECT credentials FROM feeds WHERE id = $1)
    UNION ALL
    SELECT feeds.id, feeds.status, feeds.merged_into, feeds.credentials, there.merges + 1
    FROM there JOIN feeds ON feeds.id = there.merged_into AND feeds.credentials = there.credentials
    WHERE there.status = 'merged' AND there.merges < $4
)
SELECT
    id,
    id = $1 AND version = $2 AND status = 'active',
    coalesce(id = (SELECT id FROM there ORDER BY merges DESC LIMIT 1), false),
    status = 'merged' AND merged_into IS NOT NULL,
    url,
    credentials
FROM feeds
WHERE id = $1
   OR id = (SELECT id FROM there ORDER BY merges DESC LIMIT 1)
ORDER BY id
FOR NO KEY UPDATE
