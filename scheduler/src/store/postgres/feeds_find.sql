-- The number of each URL's feed, in the URLs' order.
SELECT feeds.id
FROM UNNEST($1::text[]) WITH ORDINALITY AS new (url, number)
JOIN feeds ON feeds.url_digest = sha256(convert_to(new.url, 'UTF8')) AND feeds.credentials = ''
ORDER BY new.number
