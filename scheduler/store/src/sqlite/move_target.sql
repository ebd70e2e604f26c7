-- The feed that has the URL ?1 and the login's name ?2, or into which that one was merged by at most ?3 merges, and whether it is merged
-- all the same.
WITH RECURSIVE there AS (
    SELECT id, status, merged_into, 0 AS merges FROM feeds WHERE url = ?1 AND credentials = ?2
    UNION ALL
    SELECT feeds.id, feeds.status, feeds.merged_into, there.merges + 1
    FROM there JOIN feeds ON feeds.id = there.merged_into AND feeds.credentials = ?2
    WHERE there.status = 'merged' AND there.merges < ?3
)
SELECT id, status = 'merged' AND merged_into IS NOT NULL FROM there ORDER BY merges DESC LIMIT 1
