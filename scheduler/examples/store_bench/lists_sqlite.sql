-- ?1 feeds: a third on hosts of a thousand blogs, a tenth on one host, the rest by four.
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1),
hosts AS (
    SELECT n,
        CASE
            WHEN n % 10 < 3 THEN 'b' || (n % 1000) || '.blogs.example'
            WHEN n % 10 = 3 THEN 'shared.example'
            ELSE 'h' || (n / 4) || '.example.' || CASE n % 3 WHEN 0 THEN 'org' WHEN 1 THEN 'com' ELSE 'net' END
        END AS host,
        CASE WHEN n % 2 = 0 THEN 1 ELSE 1 + 1000000 / (1 + n * 7919 % 1000000) END AS readers
    FROM numbers
)
INSERT INTO feeds (url, host, added, subscribers, active_subscribers, sla, important, audience_at, private, category, next_due,
    title, status, failure, penalty, state, rhythm, terms, history, known, etag, last_modified, content_hash, link)
SELECT
    'https://' || host || '/' || CASE n % 5 WHEN 0 THEN 'feed' WHEN 1 THEN 'rss' WHEN 2 THEN 'atom.xml' WHEN 3 THEN 'blog/feed/' ELSE 'index.rdf' END || '-' || n,
    host || ':443', 0, readers, readers, 0, 0, 0, 0,
    CASE WHEN n % 100 = 0 THEN 'A' WHEN readers > 10 THEN 'B' WHEN readers > 1 THEN 'C' ELSE 'D' END,
    unixepoch() * 1000 + n * 61803 % 10000000,
    'The ' || CASE n % 5 WHEN 0 THEN 'daily' WHEN 1 THEN 'quiet' WHEN 2 THEN 'little' WHEN 3 THEN 'great' ELSE 'open' END || ' '
        || lower(hex(n / 3 * 2654435761 % 4294967296)) || ' '
        || CASE n % 4 WHEN 0 THEN 'news' WHEN 1 THEN 'blog' WHEN 2 THEN 'journal' ELSE 'notes' END,
    CASE WHEN n % 97 = 0 THEN 'gone' WHEN n % 89 = 0 THEN 'paused' ELSE 'active' END,
    CASE WHEN n % 31 = 0 THEN 'dns' WHEN n % 37 = 0 THEN 'status' WHEN n % 4001 = 0 THEN 'tls' END,
    CASE WHEN n % 62 = 0 THEN 'dns' END,
    '{}', randomblob(60), randomblob(27), randomblob(840), randomblob(160),
    '"' || n || '"', 'Fri, 20 Nov 2026 12:00:00 GMT', randomblob(16), 'https://' || host || '/'
FROM hosts
