-- The store of a fleet on many machines. Runs in the schema that the namespace names.
--
-- Times are milliseconds since 1970-01-01T00:00:00Z, durations milliseconds. Columns named "packed" are byte strings whose
-- layout the program documents (store/row.rs, store/history.rs). Texts that only the program compares are of collation
-- "C": byte for byte, whatever the system's locale library says next year.
-- There is no index on due times: every poll would have to write it, and none of its updates could stay on its page (HOT).
-- The schedule is built from pages by number.

-- The one row about the store itself. Updating it is the lock under which events are numbered: whoever took numbers keeps it
-- until the transaction ends, so that numbers become visible in their order. Every transaction takes it last.
CREATE TABLE store (
    one          smallint PRIMARY KEY CHECK (one = 1),
    epoch        text     NOT NULL,               -- random; cursors of another epoch mean nothing here
    paused       boolean  NOT NULL DEFAULT false, -- all polling is paused by a person
    seq          bigint   NOT NULL DEFAULT 0,     -- the last number that was given to an event; never turned back
    entries      bigint   NOT NULL DEFAULT 0,     -- rows in entries, counted as they come and go
    events_gone  bigint   NOT NULL DEFAULT 0,     -- the last seq that retention took from events
    entries_gone bigint   NOT NULL DEFAULT 0,     -- the last seq that retention took from entries
    price        double precision                 -- of a poll, agreed on by the schedulers, in subscriber-hours; NULL: the configured one
) WITH (fillfactor = 10);

INSERT INTO store (one, epoch) VALUES (1, left(replace(gen_random_uuid()::text, '-', ''), 16));

-- Feeds. An erased feed's number is never given to another, whom a late report could then hit: sequences do not turn back.
CREATE TABLE feeds (
    id                 bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- who it is
    url                text    COLLATE "C" NOT NULL,
    url_digest         bytea   NOT NULL,              -- sha256 of url: an index cannot hold a long URL itself
    credentials        bytea   NOT NULL DEFAULT '',   -- hash of the credentials, which belong to the identity; empty: none
    host               text    COLLATE "C" NOT NULL,  -- what its requests are charged to
    added              bigint  NOT NULL,              -- time
    -- what people say
    status             text    COLLATE "C" NOT NULL DEFAULT 'active',
    subscribers        bigint  NOT NULL,
    active_subscribers bigint  NOT NULL,
    sla                boolean NOT NULL,
    important          boolean NOT NULL,
    interval_ms        bigint,                        -- an interval that a person asked for
    audience_at        bigint  NOT NULL,              -- when people last set the audience, and with it the category
    calm               text,                          -- who wants it at their midnight: JSON list of {zone, subscribers}
    private            boolean NOT NULL,              -- unknown to pings and the publisher's page
    category           text    COLLATE "C" NOT NULL,  -- A, B, C, D or F
    -- when to poll
    version            bigint  NOT NULL DEFAULT 1,    -- counts applied reports and changes of url, credentials, status
    next_due           bigint,                        -- time by the policy
    wake_at            bigint,                        -- time by a ping, refresh or requeue that is not answered yet
    hold_until         bigint,                        -- time until which the server wants to be left alone; also in state
    failure            text    COLLATE "C",           -- the kind, when the last poll failed; also in state
    penalty            text    COLLATE "C",           -- the kind, while in the penalty box; also in state
    -- the last accepted document
    etag               text,                          -- as received
    last_modified      text,                          -- as received
    validators_url     text,                          -- who gave these two, when redirects led to another URL than the feed's
    content_hash       bytea,                         -- xxh3-128 of its body, big-endian
    title              text,
    link               text,                          -- the site it belongs to
    hub                text,                          -- its WebSub hub
    self_link          text,                          -- its own idea of its URL: the hub's topic
    cloud              text,                          -- its rssCloud: "domain:port/path protocol"
    entries            bigint  NOT NULL DEFAULT 0,    -- rows in entries
    moved_from         text,                          -- its URL before it moved
    merged_into        bigint  REFERENCES feeds (id) ON DELETE SET NULL,  -- the feed that it turned out to be
    -- what is remembered between polls; the long columns last
    state              text    NOT NULL DEFAULT '{}', -- the policy's memory, JSON
    rhythm             bytea   NOT NULL DEFAULT '',   -- packed (common/src/policy/rhythm.rs): when it posts; empty: nothing known
    terms              bytea   NOT NULL DEFAULT '',   -- packed: why next_due is what it is
    history            bytea   NOT NULL DEFAULT '',   -- packed: the last 20 polls, newest first
    known              bytea   NOT NULL DEFAULT '',   -- packed: fingerprints of up to 512 entries
    CHECK (url <> ''),
    CHECK (entries >= 0),
    CHECK (status <> 'active' OR next_due IS NOT NULL)  -- a live feed is always due at some time
-- A poll rewrites its row. The new form stays on the row's page, and no index hears of it, while there is room for it
-- (docs/measurements.md).
) WITH (fillfactor = 60);

-- What every poll rewrites is never compressed and stays in the row; fingerprints are no text, and a poll that brings none
-- leaves them where they are.
ALTER TABLE feeds
    ALTER COLUMN rhythm  SET STORAGE PLAIN,
    ALTER COLUMN terms   SET STORAGE PLAIN,
    ALTER COLUMN history SET STORAGE PLAIN,
    ALTER COLUMN state   SET STORAGE MAIN,
    ALTER COLUMN known   SET STORAGE EXTERNAL;

-- Vacuum by the share of dead rows alone would wait for a fifth of the table.
ALTER TABLE feeds SET (autovacuum_vacuum_scale_factor = 0.05);

CREATE UNIQUE INDEX feeds_by_url         ON feeds (url_digest, credentials);
CREATE INDEX        feeds_by_host        ON feeds (host);
CREATE INDEX        feeds_by_class       ON feeds (category, status);
CREATE INDEX        feeds_by_subscribers ON feeds (subscribers);
CREATE INDEX        feeds_by_failure     ON feeds (failure) WHERE failure IS NOT NULL;
CREATE INDEX        feeds_by_penalty     ON feeds (penalty) WHERE penalty IS NOT NULL;
CREATE INDEX        feeds_by_survivor    ON feeds (merged_into) WHERE merged_into IS NOT NULL;

-- Every entry that a feed ever had. Stays when the entry itself is deleted by retention, so that it never comes back as new.
-- Nothing references feeds, here and below: whoever writes rows of a feed holds that feed's row, and whoever erases a feed
-- deletes them with it. A check for each row would say the same again.
CREATE TABLE entry_identities (
    feed_id     bigint NOT NULL,
    identity    bytea  NOT NULL CHECK (length(identity) = 16),  -- xxh3-128 of the entry's id, big-endian
    seq         bigint NOT NULL,                                -- of its newest form: the row in entries, unless that was deleted
    fingerprint bigint NOT NULL,                                -- 64 bits that tell whether its content changed
    PRIMARY KEY (feed_id, identity)
);

-- Entries in their newest form, in the order in which they were announced.
CREATE TABLE entries (
    seq        bigint  PRIMARY KEY,           -- of the event that announced this form
    feed_id    bigint  NOT NULL,
    identity   bytea   NOT NULL,              -- as in entry_identities
    seen       bigint  NOT NULL,              -- time of its first form in the store
    stored     bigint  NOT NULL,              -- time of this form in the store
    published  bigint,                        -- time by the publisher's word
    updated    bigint,                        -- time by the publisher's word
    cut        boolean NOT NULL,              -- text was left out to stay within limits of size
    id         text    NOT NULL,              -- guid, link or hash, as the parser chose
    url        text,
    title      text,
    author     text,
    enclosures text,                          -- JSON list; NULL: none
    summary    text,
    content    text
);

CREATE INDEX entries_by_feed ON entries (feed_id, seq);

-- What consumers are told, in commit order.
CREATE TABLE events (
    seq      bigint PRIMARY KEY,
    at       bigint NOT NULL,                 -- time
    kind     text   NOT NULL,                 -- entry.new, entry.updated, feed.gone, ..
    feed_id  bigint NOT NULL,                 -- may be erased by now
    identity bytea                            -- of the entry, for entry.*
);

-- Hosts that asked to be left alone for a while.
CREATE TABLE host_holds (
    host       text   COLLATE "C" PRIMARY KEY,
    held_until bigint NOT NULL,               -- time
    feed_id    bigint NOT NULL                -- the feed that was throttled last
);
