-- Lets the subscriptions of whole target hosts go: hosts of which every subscription that this process holds is idle, the
-- smallest first, as many as hold no more subscriptions together than are beyond the process's share.
-- $1: the process; $2: its idle subscriptions; $3: how many subscriptions are beyond its share
UPDATE subscriptions SET holder = ''
WHERE holder = $1 AND target_host IN (
    SELECT target_host FROM (
        SELECT target_host, sum(count(*)) OVER (ORDER BY count(*), target_host) AS freed
        FROM subscriptions
        WHERE holder = $1 AND (state = 'active' OR intent IS NOT NULL AND (state = 'disabled' OR (intent::json ->> 'mode') = 'unsubscribe'))
        GROUP BY target_host
        HAVING bool_and(id = ANY ($2))
    ) AS idle
    WHERE freed <= $3
)
