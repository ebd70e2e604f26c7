-- Feeds $1 with new entries; $2: whether these were announced; $3: after how many announcements a push is reliable.
UPDATE push_subscriptions
SET owed      = owed + CASE WHEN NOT $2 AND state = 'verified' AND announced >= $3 THEN 1 ELSE 0 END,
    missed    = missed + CASE WHEN $2 THEN 0 ELSE 1 END,
    announced = CASE WHEN $2 THEN announced + 1 ELSE 0 END
WHERE feed_id = ANY ($1) AND state <> 'unsubscribing'
