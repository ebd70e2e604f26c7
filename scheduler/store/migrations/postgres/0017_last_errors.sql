-- Why a feed's last poll failed; NULL after a good one. At most 300 bytes, in the rows of feeds that fail only.
ALTER TABLE feeds
    ADD COLUMN last_error     text,  -- JSON
    ADD COLUMN also_announced text;  -- JSON list, what else the page announces that the feed was taken from; NULL: nothing
-- The error that an event reports.
ALTER TABLE events ADD COLUMN error text;  -- JSON
