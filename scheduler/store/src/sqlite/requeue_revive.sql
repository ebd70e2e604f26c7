-- Those among the feeds ?1 that are not polled any more get one try at ?2, for the reason ?3, but never before the end of a
-- hold. Their memory stays, so that one more failure ends it again.
UPDATE feeds
SET status   = 'active',
    version  = version + 1,
    next_due = max(?2, coalesce(hold_until, 0)),
    terms    = ?3
WHERE id IN (SELECT value FROM json_each(?1)) AND status IN ('blacklisted', 'quarantined')
