-- Numbers at $1.
SELECT
    entries,
    seq - events_gone,
    (SELECT count(*) FROM host_holds WHERE held_until > $1)
FROM store
