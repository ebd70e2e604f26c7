-- Number and status of each URL's feed, in the URLs' order. LIMIT has each looked up by itself, whatever the planner thinks
-- of `credentials`.
SELECT found.id, found.status
FROM UNNEST($1::text[]) WITH ORDINALITY AS new (url, number)
LEFT JOIN LATERAL (
    SELECT id, status FROM feeds WHERE url_digest = sha256(convert_to(new.url, 'UTF8')) AND credentials = '' LIMIT 1
) AS found ON true
ORDER BY new.number
