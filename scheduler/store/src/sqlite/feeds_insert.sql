-- Added at ?3. Known ones stay as they are.
INSERT INTO feeds (
    url, host, added, audience_at,
    subscribers, active_subscribers, sla, important, interval_ms,
    private, category, next_due, terms, calm, credentials, sealed, by_hand, labels, external_id, title, gap_since)
SELECT
    CAST(substr(?2, value ->> 0, value ->> 1) AS TEXT), CAST(substr(?2, value ->> 2, value ->> 3) AS TEXT), ?3, ?3,
    value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
    value ->> 9, value ->> 10, value ->> 11, substr(?2, value ->> 12, value ->> 13),
    CAST(substr(?2, value ->> 14, value ->> 15) AS TEXT),
    coalesce(substr(?2, value ->> 16, value ->> 17), x''), substr(?2, value ->> 18, value ->> 19),
    value ->> 20, CAST(substr(?2, value ->> 21, value ->> 22) AS TEXT), CAST(substr(?2, value ->> 23, value ->> 24) AS TEXT),
    CAST(substr(?2, value ->> 25, value ->> 26) AS TEXT), 0
FROM jsonb_each(?1) AS new
WHERE NOT EXISTS (  -- a number that is given out is used up, also where the conflict is found
    SELECT 1 FROM feeds
    WHERE url = CAST(substr(?2, new.value ->> 0, new.value ->> 1) AS TEXT)
      AND credentials = coalesce(substr(?2, new.value ->> 16, new.value ->> 17), x''))
ORDER BY key
ON CONFLICT (url, credentials) DO NOTHING
RETURNING id
