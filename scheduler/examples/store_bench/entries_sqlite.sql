-- ?1 entries of ?2 feeds, the newest of now, ten a second; one in ten has a long text.
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1),
entry AS (
    SELECT n, 1 + n * 7919 % ?2 AS feed, (unixepoch() * 10 - (?1 - n)) * 100 AS at,
        CASE n % 4 WHEN 0 THEN 'Fog over the harbour' WHEN 1 THEN 'Tides of the week' WHEN 2 THEN 'A quiet morning' ELSE 'News from the pier' END AS title
    FROM numbers
)
INSERT INTO entries (seq, feed_id, identity, seen, stored, published, cut, id, url, title, author, summary, content, details)
SELECT n, feed, randomblob(16), at, at, at - 60000, 0, 'tag:' || feed || ',' || n, 'https://blog.example/' || n, title || ' ' || n,
    CASE n % 3 WHEN 0 THEN 'Ann' END,
    replace(hex(zeroblob(12)), '00', title || ', and what came of it. '),
    CASE n % 10 WHEN 0 THEN '<p>' || replace(hex(zeroblob(100)), '00', title || ', in many more words. ') || '</p>' END,
    CASE n % 2 WHEN 0 THEN '{"language":"en"}' END
FROM entry
