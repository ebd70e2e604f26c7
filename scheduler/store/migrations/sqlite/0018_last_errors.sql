-- Why a feed's last poll failed; NULL after a good one. At most 300 bytes, in the rows of feeds that fail only.
ALTER TABLE feeds ADD COLUMN last_error TEXT;      -- JSON
-- What else the page announces that the feed was taken from.
ALTER TABLE feeds ADD COLUMN also_announced TEXT;  -- JSON list; NULL: nothing
-- The error that an event reports.
ALTER TABLE events ADD COLUMN error TEXT;          -- JSON
