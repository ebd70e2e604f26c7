-- Deletes the entries up to $1 and subtracts them from their feeds' counts; returns how many were deleted.
WITH gone AS (DELETE FROM entries WHERE seq <= $1 RETURNING feed_id),
     counts AS (SELECT feed_id, count(*) AS number FROM gone GROUP BY feed_id),
     fewer AS (UPDATE feeds SET entries = feeds.entries - counts.number FROM counts WHERE feeds.id = counts.feed_id)
SELECT count(*) FROM gone
