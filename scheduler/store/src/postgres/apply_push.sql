-- What a hub delivered is not a poll: nothing else of the feed changes.
UPDATE feeds
SET entries = feeds.entries + new.entries,
    quota   = coalesce(new.quota, feeds.quota)
FROM UNNEST($1::bigint[], $2::bigint[], $3::text[]) AS new (id, entries, quota)
WHERE feeds.id = new.id
