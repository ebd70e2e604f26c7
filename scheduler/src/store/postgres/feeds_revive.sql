-- Known feeds that are not polled any more get one try, but never before the end of a hold. Their memory stays, so that
-- one more failure ends it again. Rows are locked in the order of their numbers, as everywhere.
WITH new AS MATERIALIZED (
    SELECT sha256(convert_to(url, 'UTF8')) AS digest, next_due, terms  -- once each, as in feeds_find.sql
    FROM UNNEST($1::text[], $2::bigint[], $3::bytea[]) AS given (url, next_due, terms)
),
retired AS MATERIALIZED (
    SELECT feeds.id, new.next_due, new.terms
    FROM new
    JOIN feeds ON feeds.url_digest = new.digest AND feeds.credentials = ''
    WHERE feeds.status IN ('gone', 'blacklisted', 'quarantined', 'removed')
    ORDER BY feeds.id
    FOR NO KEY UPDATE OF feeds
)
UPDATE feeds
SET status   = 'active',
    version  = version + 1,
    wake_at  = NULL,
    next_due = greatest(retired.next_due, feeds.hold_until),
    terms    = retired.terms
FROM retired
WHERE feeds.id = retired.id
RETURNING feeds.id
