-- Subscriptions with hubs and clouds that notify of new entries (store/push.rs). The version before neither reads nor writes any of
-- it.
CREATE TABLE push_subscriptions (
    id          text    PRIMARY KEY,                -- 128 random bits in hexadecimal: part of the callback's URL
    feed_id     bigint  NOT NULL,                   -- stays when the feed is erased, until the hub was told
    kind        text    NOT NULL,                   -- websub, rsscloud
    hub         text    NOT NULL,                   -- URL; of a cloud domain:port/path protocol
    topic       text    NOT NULL,                   -- URL
    secret      bytea,                              -- sealed; signs deliveries
    state       text    NOT NULL,                   -- pending, verified, denied, lapsed, unsubscribing
    asked_at    bigint,                             -- time: a request waits for its verification
    lease_until bigint,                             -- time
    act_at      bigint  NOT NULL,                   -- time of the next request
    failures    bigint  NOT NULL DEFAULT 0,         -- requests in a row that failed
    reason      text,                               -- why the last one did, or why the hub refused
    revision    bigint  NOT NULL DEFAULT 1,         -- counts changes of the columns above
    announced   bigint  NOT NULL DEFAULT 0,         -- pushes in a row that announced new entries
    missed      bigint  NOT NULL DEFAULT 0,         -- polls that found entries which were not announced
    deliveries  bigint  NOT NULL DEFAULT 0,
    heard_at    bigint,                             -- time of the last delivery or notification
    light_at    bigint,                             -- time of the last one that caused a poll
    created     bigint  NOT NULL                    -- time
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX push_of_feed ON push_subscriptions (feed_id) WHERE state <> 'unsubscribing';
CREATE INDEX push_by_time ON push_subscriptions (act_at);
