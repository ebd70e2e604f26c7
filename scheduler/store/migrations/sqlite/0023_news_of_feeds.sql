-- What an event says beside its kind: which settings of a feed changed, or what a removed feed was.
ALTER TABLE events ADD COLUMN about TEXT;  -- JSON; NULL: nothing
