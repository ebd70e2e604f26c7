-- The store of a fleet on one machine.
--
-- Times are milliseconds since 1970-01-01T00:00:00Z, durations milliseconds, flags 0 or 1. Columns named "packed" are
-- byte strings whose layout the program documents (store/row.rs, store/history.rs).
-- There is no index on due times: nearly every poll would rewrite it, and the schedule is built from pages by number.

-- The one row about the store itself.
CREATE TABLE store (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    epoch        TEXT    NOT NULL,              -- random; cursors of another epoch mean nothing here
    paused       INTEGER NOT NULL DEFAULT 0,    -- all polling is paused by a person
    entries      INTEGER NOT NULL DEFAULT 0,    -- rows in entries, counted as they come and go
    events_gone  INTEGER NOT NULL DEFAULT 0,    -- the last seq that retention took from events
    entries_gone INTEGER NOT NULL DEFAULT 0     -- the last seq that retention took from entries
) STRICT;

INSERT INTO store (one, epoch) VALUES (1, lower(hex(randomblob(8))));

-- Feeds. AUTOINCREMENT: an erased feed's number is never given to another, whom a late report could then hit.
CREATE TABLE feeds (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    -- who it is
    url                TEXT    NOT NULL,
    credentials        BLOB    NOT NULL DEFAULT x'',  -- hash of the credentials, which belong to the identity; empty: none
    host               TEXT    NOT NULL,              -- what its requests are charged to
    added              INTEGER NOT NULL,              -- time
    -- what people say
    status             TEXT    NOT NULL DEFAULT 'active',
    subscribers        INTEGER NOT NULL,
    active_subscribers INTEGER NOT NULL,
    sla                INTEGER NOT NULL,              -- flag
    important          INTEGER NOT NULL,              -- flag
    interval_ms        INTEGER,                       -- an interval that a person asked for
    audience_at        INTEGER NOT NULL,              -- when people last set the audience, and with it the category
    private            INTEGER NOT NULL,              -- flag: unknown to pings and the publisher's page
    category           TEXT    NOT NULL,              -- A, B, C, D or F
    -- when to poll
    version            INTEGER NOT NULL DEFAULT 1,    -- counts applied reports and changes of url, credentials, status
    next_due           INTEGER,                       -- time by the policy
    wake_at            INTEGER,                       -- time by a ping, refresh or requeue that is not answered yet
    hold_until         INTEGER,                       -- time until which the server wants to be left alone; also in state
    failure            TEXT,                          -- the kind, when the last poll failed; also in state
    penalty            TEXT,                          -- the kind, while in the penalty box; also in state
    -- the last accepted document
    etag               TEXT,                          -- as received
    last_modified      TEXT,                          -- as received
    validators_url     TEXT,                          -- who gave these two, when redirects led to another URL than the feed's
    content_hash       BLOB,                          -- xxh3-128 of its body, big-endian
    title              TEXT,
    link               TEXT,                          -- the site it belongs to
    hub                TEXT,                          -- its WebSub hub
    self_link          TEXT,                          -- its own idea of its URL: the hub's topic
    cloud              TEXT,                          -- its rssCloud: "domain:port/path protocol"
    entries            INTEGER NOT NULL DEFAULT 0,    -- rows in entries
    moved_from         TEXT,                          -- its URL before it moved
    -- what is remembered between polls; the long columns last
    state              TEXT    NOT NULL DEFAULT '{}', -- the policy's memory, JSON
    terms              BLOB    NOT NULL DEFAULT x'',  -- packed: why next_due is what it is
    history            BLOB    NOT NULL DEFAULT x'',  -- packed: the last 20 polls, newest first
    known              BLOB    NOT NULL DEFAULT x'',  -- packed: fingerprints of up to 512 entries
    CHECK (url <> ''),
    CHECK (entries >= 0),
    CHECK (status <> 'active' OR next_due IS NOT NULL)  -- a live feed is always due at some time
) STRICT;

CREATE UNIQUE INDEX feeds_by_url         ON feeds (url, credentials);
CREATE INDEX        feeds_by_host        ON feeds (host);
CREATE INDEX        feeds_by_class       ON feeds (category, status);
CREATE INDEX        feeds_by_subscribers ON feeds (subscribers);
CREATE INDEX        feeds_by_failure     ON feeds (failure) WHERE failure IS NOT NULL;
CREATE INDEX        feeds_by_penalty     ON feeds (penalty) WHERE penalty IS NOT NULL;

-- Every entry that a feed ever had. Stays when the entry itself is deleted by retention, so that it never comes back as new.
CREATE TABLE entry_identities (
    feed_id     INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
    identity    BLOB    NOT NULL CHECK (length(identity) = 16),  -- xxh3-128 of the entry's id, big-endian
    seq         INTEGER NOT NULL,                                -- of its newest form: the row in entries, unless that was deleted
    fingerprint INTEGER NOT NULL,                                -- 64 bits that tell whether its content changed
    PRIMARY KEY (feed_id, identity)
) STRICT, WITHOUT ROWID;

-- Entries in their newest form, in the order in which they were announced.
CREATE TABLE entries (
    seq        INTEGER PRIMARY KEY,           -- of the event that announced this form
    feed_id    INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
    identity   BLOB    NOT NULL,              -- as in entry_identities
    seen       INTEGER NOT NULL,              -- time of its first form in the store
    stored     INTEGER NOT NULL,              -- time of this form in the store
    published  INTEGER,                       -- time by the publisher's word
    updated    INTEGER,                       -- time by the publisher's word
    cut        INTEGER NOT NULL,              -- flag: text was left out to stay within limits of size
    id         TEXT    NOT NULL,              -- guid, link or hash, as the parser chose
    url        TEXT,
    title      TEXT,
    author     TEXT,
    enclosures TEXT,                          -- JSON list; NULL: none
    summary    TEXT,
    content    TEXT
) STRICT;

CREATE INDEX entries_by_feed ON entries (feed_id);

-- What consumers are told, in commit order. AUTOINCREMENT: a seq is never used twice, whatever was deleted.
CREATE TABLE events (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,                -- time
    kind     TEXT    NOT NULL,                -- entry.new, entry.updated, feed.gone, ..
    feed_id  INTEGER NOT NULL,                -- may be erased by now
    identity BLOB                             -- of the entry, for entry.*
) STRICT;

-- Hosts that asked to be left alone for a while.
CREATE TABLE host_holds (
    host       TEXT    PRIMARY KEY,
    held_until INTEGER NOT NULL,              -- time
    feed_id    INTEGER NOT NULL               -- the feed that was throttled last
) STRICT, WITHOUT ROWID;
