-- Numbers at $1.
SELECT
    entries,
    seq - events_gone,
    (SELECT count(*) FROM host_holds WHERE held_until > $1),
    (SELECT count(*) FROM feeds WHERE gap_since IS NOT NULL AND status = 'active'),
    (SELECT count(*) FROM feeds WHERE silent_since IS NOT NULL AND status = 'active')
FROM store
