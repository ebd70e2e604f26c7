-- What a hub delivered is not a poll: nothing else of the feed changes.
UPDATE feeds
SET entries = feeds.entries + new.entries,
    known   = coalesce(new.known, feeds.known),
    quota   = coalesce(new.quota, feeds.quota)
FROM UNNEST($1::bigint[], $2::bigint[], $3::bytea[], $4::text[]) AS new (id, entries, known, quota)
WHERE feeds.id = new.id
