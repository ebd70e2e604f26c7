-- Known feeds that are not polled any more, sorted by number, get one try, but never before the end of a hold: what a
-- person took out by any wish, the others when a person adds them one by one, so that a list that is sent every night
-- does not poll them every night. An older program leaves feeds merged without a survivor when it erases that one. Their memory stays, so that one more failure ends it again. (An expression: the index
-- of statuses has them all, the rows' numbers lead.)
UPDATE feeds
SET status   = 'active',
    version  = version + 1,
    wake_at  = NULL,
    next_due = greatest(new.next_due, feeds.hold_until),
    terms    = new.terms
FROM UNNEST($1::bigint[], $2::bigint[], $3::bytea[], $4::boolean[]) AS new (id, next_due, terms, by_hand)
WHERE feeds.id = new.id
  AND (feeds.status || '' = 'removed' OR feeds.status || '' = 'merged' AND feeds.merged_into IS NULL OR new.by_hand AND feeds.status || '' IN ('gone', 'blacklisted', 'quarantined'))
RETURNING feeds.id
