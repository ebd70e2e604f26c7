-- Subscriptions with hubs and clouds that notify of new entries (store/push.rs). The version before neither reads nor writes any of
-- it.
CREATE TABLE push_subscriptions (
    id          TEXT    PRIMARY KEY,                -- 128 random bits in hexadecimal: part of the callback's URL
    feed_id     INTEGER NOT NULL,                   -- stays when the feed is erased, until the hub was told
    kind        TEXT    NOT NULL,                   -- websub, rsscloud
    hub         TEXT    NOT NULL,                   -- URL; of a cloud domain:port/path protocol
    topic       TEXT    NOT NULL,                   -- URL
    secret      BLOB,                               -- sealed; signs deliveries
    state       TEXT    NOT NULL,                   -- pending, verified, denied, lapsed, unsubscribing
    asked_at    INTEGER,                            -- time: a request waits for its verification
    lease_until INTEGER,                            -- time
    act_at      INTEGER NOT NULL,                   -- time of the next request
    failures    INTEGER NOT NULL DEFAULT 0,         -- requests in a row that failed
    reason      TEXT,                               -- why the last one did, or why the hub refused
    revision    INTEGER NOT NULL DEFAULT 1,         -- counts changes of the columns above
    announced   INTEGER NOT NULL DEFAULT 0,         -- pushes in a row that announced new entries
    missed      INTEGER NOT NULL DEFAULT 0,         -- polls that found entries which were not announced
    deliveries  INTEGER NOT NULL DEFAULT 0,
    heard_at    INTEGER,                            -- time of the last delivery or notification
    light_at    INTEGER,                            -- time of the last one that caused a poll
    created     INTEGER NOT NULL                    -- time
) STRICT;
CREATE UNIQUE INDEX push_of_feed ON push_subscriptions (feed_id) WHERE state <> 'unsubscribing';
CREATE INDEX push_by_time ON push_subscriptions (act_at);
