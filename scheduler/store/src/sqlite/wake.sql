-- The feeds ?1 at the time ?2; it is now ?3. With ?4, for a ping: also retired feeds, which it gives one try, and no feeds in
-- quarantine.
UPDATE feeds
SET wake_at = max(
        coalesce(hold_until, 0),
        CASE WHEN wake_at IS NULL THEN ?2 WHEN wake_at <= ?3 THEN ?3 ELSE min(wake_at, ?2) END)
WHERE id IN (SELECT value FROM json_each(?1)) AND (status = 'active' OR ?4 AND status IN ('blacklisted', 'gone'))
    AND (NOT ?4 OR penalty IS NOT 'crashed')
RETURNING id, host, category, CASE WHEN status = 'active' THEN next_due ELSE wake_at END AS next_due, wake_at
