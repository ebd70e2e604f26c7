-- Subscriptions: targets to which schedulers send events (store/subscriptions.rs). The version before neither reads nor writes any
-- of it.
CREATE TABLE subscriptions (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    kind             TEXT    NOT NULL,                   -- webhook
    state            TEXT    NOT NULL,                   -- active, paused, disabled
    reason           TEXT,                               -- why it is disabled
    target           TEXT    NOT NULL,                   -- URL
    filter           TEXT    NOT NULL,                   -- JSON object
    format           TEXT    NOT NULL,                   -- feedfleet, jsonfeed
    batch            INTEGER NOT NULL,                   -- the maximum number of events in a request
    delay            INTEGER NOT NULL,                   -- milliseconds that an event may wait for others
    secret           BLOB    NOT NULL,                   -- sealed; signs
    old_secret       BLOB,                               -- sealed; signs too, during a rotation
    old_secret_until INTEGER,                            -- time
    by_whom          TEXT    NOT NULL,
    created          INTEGER NOT NULL,                   -- time
    revision         INTEGER NOT NULL DEFAULT 1,         -- counts changes by people
    replays          INTEGER NOT NULL DEFAULT 0,         -- counts replays: requests after one have other ids
    failing          INTEGER NOT NULL DEFAULT FALSE,     -- flag: the last request failed; also in progress
    progress         TEXT    NOT NULL DEFAULT '{}',      -- JSON object: what was delivered, and how
    holder           TEXT    NOT NULL DEFAULT ''         -- the process that delivers
) STRICT;

-- Of which subscription an event tells, for subscription.*, which is about no feed (feed_id 0).
ALTER TABLE events ADD COLUMN subscription INTEGER;
