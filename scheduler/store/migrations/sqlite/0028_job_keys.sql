-- Keys with which schedulers sign jobs (common/job_keys.rs), and since when a fleet has them whose workers may still be of a version
-- that does not echo a signature. The version before neither reads nor writes any of it.
CREATE TABLE job_keys (
    id      INTEGER PRIMARY KEY,               -- rises; jobs name it
    secret  BLOB    NOT NULL,                  -- 32 random bytes
    made_at INTEGER NOT NULL
) STRICT;

-- NULL: the fleet began with signed jobs.
ALTER TABLE store ADD COLUMN unsigned_since INTEGER;
UPDATE store SET unsigned_since = 1000 * unixepoch() WHERE EXISTS (SELECT 1 FROM feeds);
