-- $1 entries of $2 feeds, the newest of now, ten a second; one in ten has a long text.
INSERT INTO entries (seq, feed_id, identity, seen, stored, published, cut, id, url, title, author, summary, content, details)
SELECT n, feed, decode(md5(n::text), 'hex'), at, at, at - 60000, false, 'tag:' || feed || ',' || n, 'https://blog.example/' || n,
    title || ' ' || n, CASE n % 3 WHEN 0 THEN 'Ann' END,
    repeat(title || ', and what came of it. ', 12),
    CASE n % 10 WHEN 0 THEN '<p>' || repeat(title || ', in many more words. ', 100) || '</p>' END,
    CASE n % 2 WHEN 0 THEN '{"language":"en"}' END
FROM (
    SELECT n, 1 + n * 7919 % $2::bigint AS feed, (extract(epoch FROM now())::bigint * 10 - ($1::bigint - n)) * 100 AS at,
        (ARRAY['Fog over the harbour', 'Tides of the week', 'A quiet morning', 'News from the pier'])[1 + n % 4] AS title
    FROM generate_series(1::bigint, $1::bigint) AS n
) AS entry
