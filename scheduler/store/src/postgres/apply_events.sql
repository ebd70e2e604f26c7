INSERT INTO events (seq, at, kind, feed_id, identity, error, about)
SELECT seq, $1, kind, feed_id, identity, error, about
FROM UNNEST($2::bigint[], $3::text[], $4::bigint[], $5::bytea[], $6::text[], $7::text[])
    AS new (seq, kind, feed_id, identity, error, about)
