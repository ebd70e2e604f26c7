-- Added at $1, in the order of the lists. Known ones stay as they are.
INSERT INTO feeds (
    url, url_digest, host, added, audience_at,
    subscribers, active_subscribers, sla, important, interval_ms,
    private, category, next_due, terms, calm, credentials, sealed, by_hand, labels, external_id, title, gap_since)
SELECT
    url, sha256(convert_to(url, 'UTF8')), host, $1, $1,
    subscribers, active_subscribers, sla, important, interval_ms,
    private, category, next_due, terms, calm, credentials, sealed, by_hand, labels, external_id, title, 0
FROM UNNEST(
        $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::boolean[], $7::boolean[], $8::bigint[],
        $9::boolean[], $10::text[], $11::bigint[], $12::bytea[], $13::text[],
        $14::bytea[], $15::bytea[], $16::boolean[], $17::text[], $18::text[], $19::text[])
    WITH ORDINALITY AS new (
        url, host, subscribers, active_subscribers, sla, important, interval_ms,
        private, category, next_due, terms, calm, credentials, sealed, by_hand, labels, external_id, title, number)
WHERE NOT EXISTS (  -- a number that is given out is used up, also where the conflict is found
    SELECT 1 FROM feeds
    WHERE url_digest = sha256(convert_to(new.url, 'UTF8')) AND feeds.credentials = new.credentials)
ORDER BY number
ON CONFLICT (url_digest, credentials) DO NOTHING
RETURNING id
