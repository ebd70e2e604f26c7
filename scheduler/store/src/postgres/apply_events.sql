INSERT INTO events (seq, at, kind, feed_id, identity)
SELECT seq, $1, kind, feed_id, identity
FROM UNNEST($2::bigint[], $3::text[], $4::bigint[], $5::bytea[]) AS new (seq, kind, feed_id, identity)
