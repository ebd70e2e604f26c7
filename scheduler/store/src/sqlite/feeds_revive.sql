-- Known feeds that are not polled any more get one try, but never before the end of a hold: what a person took out by
-- any wish, the others when a person adds them one by one, so that a list that is sent every night does not poll them
-- every night. An older program leaves feeds merged without a survivor when it erases that one. Their memory stays, so that one more failure ends it again.
UPDATE feeds
SET status   = 'active',
    version  = version + 1,
    wake_at  = NULL,
    next_due = max(new.value ->> 11, coalesce(hold_until, 0)),
    terms    = substr(?2, new.value ->> 12, new.value ->> 13)
FROM jsonb_each(?1) AS new
WHERE feeds.url = CAST(substr(?2, new.value ->> 0, new.value ->> 1) AS TEXT)
  AND feeds.credentials = coalesce(substr(?2, new.value ->> 16, new.value ->> 17), x'')
  AND (feeds.status = 'removed' OR feeds.status = 'merged' AND feeds.merged_into IS NULL OR new.value ->> 20 AND feeds.status IN ('gone', 'blacklisted', 'quarantined'))
RETURNING id
