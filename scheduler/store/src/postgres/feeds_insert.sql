-- Added at $1, in the order of the lists. Known ones stay as they are.
INSERT INTO feeds (
    url, url_digest, host, added, audience_at,
    subscribers, active_subscribers, sla, important, interval_ms,
    private, category, next_due, terms, calm, credentials, sealed, by_hand)
SELECT
    url, sha256(convert_to(url, 'UTF8')), host, $1, $1,
    subscribers, active_subscribers, sla, important, interval_ms,
    private, category, next_due, terms, calm, credentials, sealed, by_hand
FROM UNNEST(
        $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::boolean[], $7::boolean[], $8::bigint[],
        $9::boolean[], $10::text[], $11::bigint[], $12::bytea[], $13::text[],
        $14::bytea[], $15::bytea[], $16::boolean[])
    WITH ORDINALITY AS new (
        url, host, subscribers, active_subscribers, sla, important, interval_ms,
        private, category, next_due, terms, calm, credentials, sealed, by_hand, number)
ORDER BY number
ON CONFLICT (url_digest, credentials) DO NOTHING
RETURNING id
