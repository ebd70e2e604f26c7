-- Rows: feed, further entries, known entries (null: unchanged), quota (null: unchanged). What a hub delivered is not a poll: nothing
-- else changes.
UPDATE feeds
SET entries = entries + (new.value ->> 1),
    known   = coalesce(substr(?2, new.value ->> 2, new.value ->> 3), known),
    quota   = coalesce(CAST(substr(?2, new.value ->> 4, new.value ->> 5) AS TEXT), quota)
FROM jsonb_each(?1) AS new
WHERE feeds.id = new.value ->> 0
