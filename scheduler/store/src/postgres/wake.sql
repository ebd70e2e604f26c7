-- The feeds $1 at the time $2; it is now $3. With $4, for a ping: also retired feeds, which it gives one try, and no feeds in
-- quarantine. Rows are locked in the order of their numbers, as everywhere.
WITH live AS MATERIALIZED (
    SELECT id FROM feeds
    WHERE id = ANY ($1) AND (status = 'active' OR $4 AND status IN ('blacklisted', 'gone'))
        AND (NOT $4 OR penalty IS DISTINCT FROM 'crashed')
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE feeds
SET wake_at = greatest(
        hold_until,
        CASE WHEN wake_at IS NULL THEN $2 WHEN wake_at <= $3 THEN $3 ELSE least(wake_at, $2) END)
FROM live
WHERE feeds.id = live.id
RETURNING feeds.id, host, category, CASE WHEN status = 'active' THEN next_due ELSE wake_at END AS next_due, wake_at
