-- Feed ?1 at ?2; a NULL leaves as it is. ?3..?7 audience, ?8 its category, ?9 private, ?10 status, ?11 next due,
-- ?12 terms of a due time that is not the policy's, ?13 flag: ?14 calm groups, which may be NULL, ?15 name of a login (empty:
-- none), ?16 the login itself,
-- ?17..?22 version and audience that the change was made from: of another row nothing changes; ?23 flag: labels ?25 instead of
-- ?24, of other ones nothing changes; ?26 flag: the caller's own id ?27; ?28 its archive.
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
    labels             = CASE WHEN ?23 THEN ?25 ELSE labels END,
    external_id        = CASE WHEN ?26 THEN ?27 ELSE external_id END,
    version            = version + (coalesce(?10, status) <> status OR ?15 IS NOT NULL),
    status             = coalesce(?10, status),
    credentials        = coalesce(?15, credentials),
    sealed             = CASE WHEN ?15 IS NULL THEN sealed ELSE ?16 END,
    etag               = CASE WHEN ?15 IS NULL THEN etag END,
    last_modified      = CASE WHEN ?15 IS NULL THEN last_modified END,
    validators_url     = CASE WHEN ?15 IS NULL THEN validators_url END,
    content_hash       = CASE WHEN ?15 IS NULL THEN content_hash END,
    next_due           = CASE
        WHEN ?11 IS NOT NULL                                    THEN max(?11, coalesce(hold_until, 0))
        WHEN next_due IS NULL AND coalesce(?10, status) = 'active' THEN max(?2, coalesce(hold_until, 0))
        ELSE next_due END,
    terms              = CASE
        WHEN ?11 IS NOT NULL OR (next_due IS NULL AND coalesce(?10, status) = 'active') THEN ?12
        ELSE terms END,
    archive            = coalesce(?28, archive)
WHERE id = ?1
  AND (?17 IS NULL OR (
        version = ?17 AND subscribers = ?18 AND active_subscribers = ?19 AND sla = ?20 AND important = ?21
        AND interval_ms IS ?22))
  AND (NOT ?23 OR labels IS ?24)
RETURNING *
