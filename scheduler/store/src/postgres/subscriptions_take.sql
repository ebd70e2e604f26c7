-- Takes subscriptions that no living process holds: all to the target hosts to which this process sends already, and other hosts
-- that are nobody's, each whole, until the process has its share.
-- $1: the process; $2: how many subscriptions are missing from its share
WITH active AS (
    SELECT id, target_host, coalesce(lease.holder, '') AS holder
    FROM subscriptions AS it LEFT JOIN delivery_leases AS lease
        ON lease.holder = it.holder
        AND (lease.holder = $1 OR lease.held_until >= floor(1000 * extract(epoch FROM clock_timestamp()))::bigint)
    WHERE state = 'active' OR intent IS NOT NULL AND (state = 'disabled' OR (intent::json ->> 'mode') = 'unsubscribe')
), hosts AS (
    SELECT target_host, count(*) FILTER (WHERE holder = '') AS free, bool_or(holder = $1) AS mine, max(holder) = '' AS nobodys
    FROM active GROUP BY target_host
), ranked AS (
    SELECT target_host, mine, nobodys,
        sum(free) FILTER (WHERE nobodys) OVER (ORDER BY target_host) - free AS before
    FROM hosts WHERE free > 0
)
UPDATE subscriptions AS it SET holder = $1
FROM active JOIN ranked USING (target_host)
WHERE it.id = active.id AND active.holder = '' AND (ranked.mine OR ranked.nobodys AND ranked.before < $2)
