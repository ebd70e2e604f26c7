-- Confirmed subscriptions at the hub after number ?1 that end, or whose feed was merged. ?2: the hub is closed to all,
-- ?3: to subscribers without a token (?4).
SELECT it.id, CASE WHEN ?2 OR (?3 AND it.by_whom = ?4) THEN NULL ELSE feeds.merged_into END
FROM subscriptions AS it
LEFT JOIN feeds ON feeds.id = json_extract(it.filter, '$.feed')
WHERE it.kind = 'websub' AND it.intent IS NULL AND it.id > ?1
  AND (?2 OR feeds.id IS NULL OR feeds.status IN ('merged', 'removed', 'gone')
       OR (it.by_whom = ?4 AND (?3 OR feeds.private OR feeds.sealed IS NOT NULL)))
ORDER BY it.id
LIMIT 500
