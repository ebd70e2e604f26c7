-- Id and status of each URL's feed with its login's name, in the order of the URLs. LIMIT makes the planner look up each one
-- separately, whatever its estimate for `credentials`.
SELECT found.id, found.status
FROM UNNEST($1::text[], $2::bytea[]) WITH ORDINALITY AS new (url, credentials, number)
LEFT JOIN LATERAL (
    SELECT id, status FROM feeds
    WHERE url_digest = sha256(convert_to(new.url, 'UTF8')) AND feeds.credentials = new.credentials
    LIMIT 1
) AS found ON true
ORDER BY new.number
