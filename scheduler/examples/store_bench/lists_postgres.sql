-- $1 feeds: a third on hosts of a thousand blogs, a tenth on one host, the rest by four.
INSERT INTO feeds (url, url_digest, host, added, subscribers, active_subscribers, sla, important, audience_at, private, category, next_due,
    title, status, failure, penalty, state, rhythm, terms, history, known, etag, last_modified, content_hash, link)
SELECT
    url, sha256(convert_to(url, 'UTF8')), host || ':443', 0, readers, readers, false, false, 0, false,
    CASE WHEN n % 100 = 0 THEN 'A' WHEN readers > 10 THEN 'B' WHEN readers > 1 THEN 'C' ELSE 'D' END,
    -- Within the schedule's window of some weeks.
    (extract(epoch FROM now()) * 1000)::bigint + n * 61803 % 10000000,
    'The ' || (ARRAY['daily', 'quiet', 'little', 'great', 'open'])[1 + n % 5] || ' ' || to_hex(n / 3 * 2654435761 % 4294967296) || ' '
        || (ARRAY['news', 'blog', 'journal', 'notes'])[1 + n % 4],
    CASE WHEN n % 97 = 0 THEN 'gone' WHEN n % 89 = 0 THEN 'paused' ELSE 'active' END,
    CASE WHEN n % 31 = 0 THEN 'dns' WHEN n % 37 = 0 THEN 'status' WHEN n % 4001 = 0 THEN 'tls' END,
    CASE WHEN n % 62 = 0 THEN 'dns' END,
    '{}', decode(repeat('01', 60), 'hex'), decode(repeat('01', 27), 'hex'), decode(repeat('01', 840), 'hex'),
    decode(repeat('01', 160), 'hex'),
    '"' || n || '"', 'Fri, 20 Nov 2026 12:00:00 GMT', decode(md5(n::text), 'hex'), 'https://' || host || '/'
FROM (
    SELECT n, host, readers,
        'https://' || host || '/' || (ARRAY['feed', 'rss', 'atom.xml', 'blog/feed/', 'index.rdf'])[1 + n % 5] || '-' || n AS url
    FROM (
        SELECT n,
            CASE
                WHEN n % 10 < 3 THEN 'b' || (n % 1000) || '.blogs.example'
                WHEN n % 10 = 3 THEN 'shared.example'
                ELSE 'h' || (n / 4) || '.example.' || (ARRAY['org', 'com', 'net'])[1 + n % 3]
            END AS host,
            CASE WHEN n % 2 = 0 THEN 1 ELSE 1 + 1000000 / (1 + n * 7919 % 1000000) END AS readers
        FROM generate_series(1::bigint, $1::bigint) AS n
    ) AS hosts
) AS feeds
