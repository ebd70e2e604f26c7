-- Feed ?1 at ?2; a NULL leaves as it is. ?3..?7 audience, ?8 its category, ?9 private, ?10 status, ?11 next due,
-- ?12 terms of a due time that is not the policy's, ?13 flag: ?14 calm groups, which may be NULL.
UPDATE feeds
SET subscribers        = coalesce(?3, subscribers),
    active_subscribers = coalesce(?4, active_subscribers),
    sla                = coalesce(?5, sla),
    important          = coalesce(?6, important),
    interval_ms        = CASE WHEN ?8 IS NULL THEN interval_ms ELSE ?7 END,
    category           = coalesce(?8, category),
    audience_at        = CASE WHEN ?8 IS NULL THEN audience_at ELSE ?2 END,
    calm               = CASE WHEN ?13 THEN ?14 ELSE calm END,
    private            = coalesce(?9, private),
    version            = version + (coalesce(?10, status) <> status),
    status             = coalesce(?10, status),
    next_due           = CASE
        WHEN ?11 IS NOT NULL                                    THEN max(?11, coalesce(hold_until, 0))
        WHEN next_due IS NULL AND coalesce(?10, status) = 'active' THEN max(?2, coalesce(hold_until, 0))
        ELSE next_due END,
    terms              = CASE
        WHEN ?11 IS NOT NULL OR (next_due IS NULL AND coalesce(?10, status) = 'active') THEN ?12
        ELSE terms END
WHERE id = ?1
RETURNING *
