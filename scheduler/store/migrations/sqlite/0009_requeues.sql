-- Requeues: wishes that many feeds be polled now, handed out at a rate (store/requeues.rs). The version before neither reads
-- nor writes any of it.
CREATE TABLE requeues (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    state          TEXT    NOT NULL DEFAULT 'running',  -- running, done, cancelled
    filter         TEXT    NOT NULL,                    -- JSON object
    rate           REAL    NOT NULL CHECK (rate > 0),   -- feeds a second
    lift_penalties INTEGER NOT NULL,                    -- flag
    by_whom        TEXT    NOT NULL,
    created        INTEGER NOT NULL,                    -- time
    ended          INTEGER,                             -- time
    matched        INTEGER NOT NULL,                    -- feeds that fitted the filter when it was asked for
    queued         INTEGER NOT NULL,                    -- of these, the ones that could be polled
    woken          INTEGER NOT NULL DEFAULT 0,          -- feeds so far
    last_feed      INTEGER NOT NULL,                    -- the last feed that there was
    next_after     INTEGER NOT NULL DEFAULT 0,          -- feeds up to this number are done with
    spent_until    REAL    NOT NULL                     -- time up to which the rate is used up, with fractions
) STRICT;
