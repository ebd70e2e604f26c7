-- At most ?2 feeds that pings reach and whose site is the address ?1.
SELECT id FROM feeds
WHERE link = ?1 AND link IS NOT NULL
  AND status IN ('active', 'blacklisted', 'gone') AND NOT private AND credentials = x''
ORDER BY id
LIMIT ?2
