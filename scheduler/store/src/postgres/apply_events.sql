INSERT INTO events (seq, at, kind, feed_id, identity, error)
SELECT seq, $1, kind, feed_id, identity, error
FROM UNNEST($2::bigint[], $3::text[], $4::bigint[], $5::bytea[], $6::text[]) AS new (seq, kind, feed_id, identity, error)
