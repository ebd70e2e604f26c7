-- How far the older entries of a feed were read, while they are (common/src/archive.rs).
ALTER TABLE feeds ADD COLUMN archive TEXT;  -- JSON; NULL: they are not read
