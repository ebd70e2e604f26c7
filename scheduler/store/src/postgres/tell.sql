-- Events at $2 with the numbers after $1, in this order.
INSERT INTO events (seq, at, kind, feed_id, about)
SELECT $1 + number, $2, kind, feed_id, about
FROM UNNEST($3::text[], $4::bigint[], $5::text[]) WITH ORDINALITY AS new (kind, feed_id, about, number)
