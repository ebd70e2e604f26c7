-- Those among the feeds $1 that are not polled any more get one try at $2, for the reason $3, but never before the end of a
-- hold. Their memory stays, so that one more failure ends it again. The caller holds their rows.
UPDATE feeds
SET status   = 'active',
    version  = version + 1,
    next_due = greatest($2, hold_until),
    terms    = $3
WHERE id = ANY ($1) AND status IN ('blacklisted', 'quarantined')
