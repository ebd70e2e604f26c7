-- Numbers at ?1.
SELECT
    store.entries,
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) - store.events_gone,
    (SELECT count(*) FROM host_holds WHERE held_until > ?1)
FROM store
