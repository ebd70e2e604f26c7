-- Live feeds of category A whose next poll comes more than $1 milliseconds after the last one.
SELECT count(*)
FROM feeds
WHERE category = 'A'
  AND status = 'active'
  AND next_due - 1000 * extract(epoch FROM (state::jsonb ->> 'last_polled')::timestamptz) > $1
