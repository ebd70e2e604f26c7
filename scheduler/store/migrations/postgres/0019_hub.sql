-- Subscriptions at the WebSub hub (store/subscriptions.rs). All of these columns are NULL for webhooks.
ALTER TABLE subscriptions ADD COLUMN hub_key text;         -- hash of topic and callback: there is one subscription of each pair
ALTER TABLE subscriptions ADD COLUMN topic text;           -- URL, as the subscriber wrote it
ALTER TABLE subscriptions ADD COLUMN lease_until bigint;   -- time
ALTER TABLE subscriptions ADD COLUMN intent text;          -- JSON object: what the subscriber must confirm, or is told
CREATE UNIQUE INDEX subscriptions_hub_key ON subscriptions (hub_key) WHERE hub_key IS NOT NULL;
CREATE INDEX subscriptions_asking ON subscriptions (id) WHERE intent IS NOT NULL;

-- Feeds that are polled because the hub added them, and nobody else since: they are erased with the last subscription to them.
CREATE TABLE hub_feeds (
    feed_id bigint PRIMARY KEY REFERENCES feeds (id) ON DELETE CASCADE,
    added   bigint NOT NULL  -- time
);
