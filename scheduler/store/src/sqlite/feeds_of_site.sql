-- At most ?2 feeds that pings reach and whose site is one of the addresses ?1.
SELECT id FROM feeds
WHERE link IN (SELECT value FROM json_each(?1))
  AND status IN ('active', 'blacklisted', 'gone') AND NOT private AND credentials = x''
ORDER BY id
LIMIT ?2
