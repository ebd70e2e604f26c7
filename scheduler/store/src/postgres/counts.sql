-- The counters but for those of hosts: what was added up, and what was not as yet.
SELECT kind, name, sum(feeds)::bigint
FROM (
    SELECT kind, name, feeds FROM feed_counts WHERE kind IN ('class', 'failure', 'penalty', 'standing')
    UNION ALL
    SELECT kind, name, feeds FROM feed_count_changes WHERE kind IN ('class', 'failure', 'penalty', 'standing')
) AS counted
GROUP BY kind, name
