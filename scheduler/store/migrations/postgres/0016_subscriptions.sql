-- Subscriptions: targets to which schedulers send events (store/subscriptions.rs). The version before neither reads nor writes any
-- of it.
CREATE TABLE subscriptions (
    id               bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text    NOT NULL,                   -- webhook
    state            text    NOT NULL,                   -- active, paused, disabled
    reason           text,                               -- why it is disabled
    target           text    NOT NULL,                   -- URL
    filter           text    NOT NULL,                   -- JSON object
    format           text    NOT NULL,                   -- feedfleet, jsonfeed
    batch            bigint  NOT NULL,                   -- the maximum number of events in a request
    delay            bigint  NOT NULL,                   -- milliseconds that an event may wait for others
    secret           bytea   NOT NULL,                   -- sealed; signs
    old_secret       bytea,                              -- sealed; signs too, during a rotation
    old_secret_until bigint,                             -- time
    by_whom          text    NOT NULL,
    created          bigint  NOT NULL,                   -- time
    revision         bigint  NOT NULL DEFAULT 1,         -- counts changes by people
    replays          bigint  NOT NULL DEFAULT 0,         -- counts replays: requests after one have other ids
    failing          boolean NOT NULL DEFAULT FALSE,     -- the last request failed; also in progress
    progress         text    NOT NULL DEFAULT '{}',      -- JSON object: what was delivered, and how
    holder           text    NOT NULL DEFAULT ''         -- the scheduler that delivers, if its lease lasts
) WITH (fillfactor = 50);

-- The schedulers that deliver: one lease for all that each holds.
CREATE TABLE delivery_leases (
    holder     text   PRIMARY KEY,
    held_until bigint NOT NULL                           -- time at which it ends unless it is renewed
) WITH (fillfactor = 50);

-- Of which subscription an event tells, for subscription.*, which is about no feed (feed_id 0).
ALTER TABLE events ADD COLUMN subscription bigint;
