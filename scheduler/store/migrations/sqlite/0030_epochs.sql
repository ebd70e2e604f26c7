-- How many epochs the store has begun: a database that failed over to a standby that lagged gives versions of feeds out again, and
-- the host gate must not take them for those that were polled already.
ALTER TABLE store ADD COLUMN epochs INTEGER NOT NULL DEFAULT 0;
