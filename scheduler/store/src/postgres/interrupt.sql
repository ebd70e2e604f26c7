-- The fetch of feed $1 of version $2 continues at $3 (NULL: where it was to), not before $4 (NULL: whenever), whose terms are $5.
UPDATE feeds
SET detour   = coalesce($3, detour),
    next_due = CASE WHEN $4::bigint > next_due THEN $4 ELSE next_due END,
    terms    = CASE WHEN $4::bigint > next_due THEN $5 ELSE terms END,
    wake_at  = CASE WHEN $4::bigint > wake_at THEN $4 ELSE wake_at END
WHERE id = $1 AND version = $2
