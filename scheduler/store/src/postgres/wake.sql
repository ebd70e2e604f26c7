-- The feeds $1 at the time $2; it is now $3. Rows are locked in the order of their numbers, as everywhere.
WITH live AS MATERIALIZED (
    SELECT id FROM feeds WHERE id = ANY ($1) AND status = 'active' ORDER BY id FOR NO KEY UPDATE
)
UPDATE feeds
SET wake_at = greatest(
        hold_until,
        CASE WHEN wake_at IS NULL THEN $2 WHEN wake_at <= $3 THEN $3 ELSE least(wake_at, $2) END)
FROM live
WHERE feeds.id = live.id
RETURNING feeds.id, host, category, next_due, wake_at
