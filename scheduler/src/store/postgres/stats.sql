-- Numbers at $1.
SELECT
    (SELECT entries FROM store),
    (SELECT count(*) FROM events),
    (SELECT count(*) FROM feeds WHERE status = 'active' AND next_due <= $1),
    (SELECT count(*) FROM host_holds WHERE held_until > $1)
