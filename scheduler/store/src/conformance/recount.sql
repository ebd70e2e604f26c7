-- What the counters should say.
SELECT 'class' AS kind, category || ' ' || status AS name, count(*) AS feeds FROM feeds GROUP BY category, status
UNION ALL SELECT 'host', host, count(*) FROM feeds GROUP BY host
UNION ALL SELECT 'failure', failure, count(*) FROM feeds WHERE failure IS NOT NULL GROUP BY failure
UNION ALL SELECT 'penalty', penalty, count(*) FROM feeds WHERE penalty IS NOT NULL GROUP BY penalty
UNION ALL SELECT 'standing', 'complete', count(*) FROM feeds WHERE gap_since IS NULL AND status = 'active' HAVING count(*) > 0
UNION ALL SELECT 'standing', 'silent', count(*) FROM feeds WHERE silent_since IS NOT NULL AND status = 'active' HAVING count(*) > 0
ORDER BY 1, 2
