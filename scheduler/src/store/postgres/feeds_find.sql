-- The number of each URL's feed, in the URLs' order. Each URL's digest is made once, whatever the plan: in the join's condition it
-- is made for every pair of rows where the planner, which knows no length of a list, loops over both.
WITH new AS MATERIALIZED (
    SELECT sha256(convert_to(url, 'UTF8')) AS digest, number
    FROM UNNEST($1::text[]) WITH ORDINALITY AS given (url, number)
)
SELECT feeds.id
FROM new
JOIN feeds ON feeds.url_digest = new.digest AND feeds.credentials = ''
ORDER BY new.number
