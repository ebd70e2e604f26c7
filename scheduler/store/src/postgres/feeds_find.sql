-- Number and status of each URL's feed with its login's name, in the URLs' order. LIMIT has each looked up by itself, whatever the planner thinks
-- of `credentials`.
SELECT found.id, found.status
FROM UNNEST($1::text[], $2::bytea[]) WITH ORDINALITY AS new (url, credentials, number)
LEFT JOIN LATERAL (
    SELECT id, status FROM feeds
    WHERE url_digest = sha256(convert_to(new.url, 'UTF8')) AND feeds.credentials = new.credentials
    LIMIT 1
) AS found ON true
ORDER BY new.number
