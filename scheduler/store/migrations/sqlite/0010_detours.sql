-- Where a fetch goes on that a busy host interrupted (store/row.rs, StoredDetour), and which feeds a person added one by one. The
-- version before neither reads nor writes them.
ALTER TABLE feeds ADD COLUMN detour TEXT;                          -- JSON object, for the version that it names
ALTER TABLE feeds ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0;   -- flag
