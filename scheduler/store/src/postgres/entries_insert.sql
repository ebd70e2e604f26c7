INSERT INTO entries (
    seq, feed_id, identity, seen, stored, published, updated, cut,
    id, url, title, author, enclosures, summary, content, details)
SELECT
    seq, feed_id, identity, seen, $1, published, updated, cut,
    id, url, title, author, enclosures, summary, content, details
FROM UNNEST(
        $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[],
        $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[])
    AS new (
        seq, feed_id, identity, seen, published, updated, cut,
        id, url, title, author, enclosures, summary, content, details)
