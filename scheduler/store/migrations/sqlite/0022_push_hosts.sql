-- What keeps push subscriptions fair and their feeds at the right pace (store/push.rs).
ALTER TABLE push_subscriptions ADD COLUMN host       TEXT    NOT NULL DEFAULT ''; -- of the hub; rows of the version before share one
ALTER TABLE push_subscriptions ADD COLUMN owed       INTEGER NOT NULL DEFAULT 0;  -- the feed is to get its own pace back: how often that was found
ALTER TABLE push_subscriptions ADD COLUMN left_at    INTEGER;                     -- time: being left since then
ALTER TABLE push_subscriptions ADD COLUMN awaited    INTEGER NOT NULL DEFAULT 0;  -- deliveries that were accepted and not yet stored
ALTER TABLE push_subscriptions ADD COLUMN awaited_at INTEGER;                     -- time of the last of them
UPDATE push_subscriptions SET left_at = act_at WHERE state = 'unsubscribing';
DROP INDEX push_by_time;
CREATE INDEX push_renewals ON push_subscriptions (host, act_at) WHERE lease_until IS NOT NULL;
CREATE INDEX push_requests ON push_subscriptions (host, act_at) WHERE lease_until IS NULL;
CREATE INDEX push_owed ON push_subscriptions (feed_id) WHERE owed > 0;
CREATE INDEX push_awaited ON push_subscriptions (feed_id) WHERE awaited > 0;
CREATE INDEX push_left ON push_subscriptions (left_at) WHERE state = 'unsubscribing';
CREATE INDEX push_left_of_feed ON push_subscriptions (feed_id) WHERE state = 'unsubscribing';

-- Hosts of hubs: one scheduler at a time sends the requests to one host.
CREATE TABLE push_hosts (
    host        TEXT    PRIMARY KEY,
    due_at      INTEGER NOT NULL,           -- time: nothing is due before then
    taken_until INTEGER NOT NULL DEFAULT 0  -- time
) STRICT;
CREATE INDEX push_hosts_due ON push_hosts (due_at);
INSERT INTO push_hosts (host, due_at) SELECT '', min(act_at) FROM push_subscriptions HAVING count(*) > 0;

-- The feeds that announce a hub or a cloud, for the sweep over them.
CREATE INDEX feeds_announcing ON feeds (id) WHERE status = 'active' AND (hub IS NOT NULL OR cloud IS NOT NULL);
