-- When a feed posts, who wants it once a day, and what a poll costs. The version before neither reads nor writes any of it.

-- Packed (common/src/policy/rhythm.rs), empty while nothing is known. What the version before remembered of the rate is
-- learned anew.
ALTER TABLE feeds ADD COLUMN rhythm BLOB NOT NULL DEFAULT x'';

-- Subscribers who want it at their midnight: JSON list of {zone, subscribers}; NULL: none.
ALTER TABLE feeds ADD COLUMN calm TEXT;

-- The price of a poll that the schedulers agreed on, in subscriber-hours; NULL: the configured one.
ALTER TABLE store ADD COLUMN price REAL;
