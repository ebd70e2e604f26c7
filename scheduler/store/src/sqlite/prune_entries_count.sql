-- Takes the entries up to ?1 off their feeds' counts.
UPDATE feeds
SET entries = entries - gone.number
FROM (SELECT feed_id, count(*) AS number FROM entries WHERE seq <= ?1 GROUP BY feed_id) AS gone
WHERE feeds.id = gone.feed_id
