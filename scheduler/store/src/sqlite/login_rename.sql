-- The feed with URL ?1 and the login that an older key calls ?2: the key in force calls it ?3, and sealed it as ?4.
UPDATE feeds
SET credentials = ?3, sealed = ?4
WHERE url = ?1 AND credentials = ?2
  AND NOT EXISTS (SELECT 1 FROM feeds WHERE url = ?1 AND credentials = ?3)
