-- Ports 80 and 443 of a name are one host, written as 443. Rows of port 80 are from programs that told them apart, and would
-- stand beside what is said of the host now: the longer hold or block of the two counts. Programs from before keep what they
-- know of a host that is missing here.

UPDATE store SET host_orders = host_orders + 1
WHERE EXISTS (SELECT 1 FROM host_blocks WHERE host LIKE '%:80' AND host NOT LIKE '%::80');
INSERT INTO host_blocks (host, blocked_until)
SELECT substr(host, 1, length(host) - 3) || ':443', blocked_until FROM host_blocks
WHERE host LIKE '%:80' AND host NOT LIKE '%::80'
ON CONFLICT (host) DO UPDATE SET blocked_until = excluded.blocked_until
WHERE excluded.blocked_until > host_blocks.blocked_until;
DELETE FROM host_blocks WHERE host LIKE '%:80' AND host NOT LIKE '%::80';

INSERT INTO host_holds (host, held_until, feed_id)
SELECT substr(host, 1, length(host) - 3) || ':443', held_until, feed_id FROM host_holds
WHERE host LIKE '%:80' AND host NOT LIKE '%::80'
ON CONFLICT (host) DO UPDATE SET held_until = excluded.held_until, feed_id = excluded.feed_id
WHERE excluded.held_until > host_holds.held_until;
DELETE FROM host_holds WHERE host LIKE '%:80' AND host NOT LIKE '%::80';

-- Triggers keep the counts.
UPDATE feeds SET host = substr(host, 1, length(host) - 3) || ':443' WHERE host LIKE '%:80' AND host NOT LIKE '%::80';
