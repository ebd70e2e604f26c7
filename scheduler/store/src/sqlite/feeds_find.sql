-- The number of each row's feed, in the rows' order.
SELECT feeds.id
FROM jsonb_each(?1) AS new
CROSS JOIN feeds
    ON feeds.url = CAST(substr(?2, new.value ->> 0, new.value ->> 1) AS TEXT) 
    AND feeds.credentials = coalesce(substr(?2, new.value ->> 16, new.value ->> 17), x'')
ORDER BY new.key
