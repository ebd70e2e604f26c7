-- Requeues: wishes that many feeds be polled now, handed out at a rate (store/requeues.rs). The version before neither reads
-- nor writes any of it.
CREATE TABLE requeues (
    id             bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state          text             NOT NULL DEFAULT 'running',  -- running, done, cancelled
    filter         text             NOT NULL,                    -- JSON object
    rate           double precision NOT NULL CHECK (rate > 0),   -- feeds a second
    lift_penalties boolean          NOT NULL,
    by_whom        text             NOT NULL,
    created        bigint           NOT NULL,                    -- time
    ended          bigint,                                       -- time
    matched        bigint           NOT NULL,                    -- feeds that fitted the filter when it was asked for
    queued         bigint           NOT NULL,                    -- of these, the ones that could be polled
    woken          bigint           NOT NULL DEFAULT 0,          -- feeds so far
    last_feed      bigint           NOT NULL,                    -- the last feed that there was
    next_after     bigint           NOT NULL DEFAULT 0,          -- feeds up to this number are done with
    spent_until    double precision NOT NULL                     -- time up to which the rate is used up, with fractions
);
