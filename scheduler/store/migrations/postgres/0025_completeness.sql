-- Which feeds may miss entries, and which are silent: what is counted. The policy's memory has both too.
ALTER TABLE feeds ADD COLUMN gap_since bigint;     -- time of the last good poll before entries may have been missed; 0: not read yet; NULL: complete
ALTER TABLE feeds ADD COLUMN silent_since bigint;  -- time of the newest entry; NULL: not silent

CREATE INDEX feeds_incomplete ON feeds (gap_since) WHERE gap_since IS NOT NULL;
CREATE INDEX feeds_silent ON feeds (silent_since) WHERE silent_since IS NOT NULL;
