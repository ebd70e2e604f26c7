-- Rows: seq, feed, identity, first seen, stored, published, updated, cut, id, url, title, author, enclosures, summary, content, details.
INSERT INTO entries (
    seq, feed_id, identity, seen, stored, published, updated, cut,
    id, url, title, author, enclosures, summary, content, details)
SELECT
    value ->> 0, value ->> 1, substr(?2, value ->> 2, value ->> 3), value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
    CAST(substr(?2, value ->> 9,  value ->> 10) AS TEXT), CAST(substr(?2, value ->> 11, value ->> 12) AS TEXT),
    CAST(substr(?2, value ->> 13, value ->> 14) AS TEXT), CAST(substr(?2, value ->> 15, value ->> 16) AS TEXT),
    CAST(substr(?2, value ->> 17, value ->> 18) AS TEXT), CAST(substr(?2, value ->> 19, value ->> 20) AS TEXT),
    CAST(substr(?2, value ->> 21, value ->> 22) AS TEXT), CAST(substr(?2, value ->> 23, value ->> 24) AS TEXT)
FROM jsonb_each(?1)
