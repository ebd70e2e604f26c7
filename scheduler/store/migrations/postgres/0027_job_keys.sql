-- Keys with which schedulers sign jobs (common/job_keys.rs), and since when a fleet has them whose workers may still be of a version
-- that does not echo a signature. The version before neither reads nor writes any of it.
CREATE TABLE job_keys (
    id      bigint PRIMARY KEY,                -- rises; jobs name it
    secret  bytea  NOT NULL,                   -- 32 random bytes
    made_at bigint NOT NULL
);

-- NULL: the fleet began with signed jobs.
ALTER TABLE store ADD COLUMN unsigned_since bigint;
UPDATE store SET unsigned_since = floor(1000 * extract(epoch FROM clock_timestamp()))::bigint
    WHERE EXISTS (SELECT FROM feeds);
