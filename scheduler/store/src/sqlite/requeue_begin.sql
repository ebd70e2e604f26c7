-- A requeue at $6 by $5, unless $9 run already: filter $1, rate $2, flag $3, feeds matched $7 and reached $8; its rate is
-- used up until $4.
INSERT INTO requeues (filter, rate, lift_penalties, spent_until, by_whom, created, matched, queued, last_feed)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, (SELECT coalesce(max(id), 0) FROM feeds)
WHERE (SELECT count(*) FROM requeues WHERE state = 'running') < $9
RETURNING *
