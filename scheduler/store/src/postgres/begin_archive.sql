-- Of a live feed $1 of version $2: reads archive $3 from $4 on, but not before the end of a hold.
UPDATE feeds
SET archive  = $3,
    version  = version + 1,
    next_due = least(next_due, greatest($4, coalesce(hold_until, 0)))
WHERE id = $1 AND version = $2 AND status = 'active'
RETURNING id, host, category, next_due, wake_at
