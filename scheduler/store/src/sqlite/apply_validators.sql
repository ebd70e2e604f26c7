-- Rows: feed, etag, last modified, URL of these two. Validators belong to an accepted document: where none is known
-- (they were forgotten while the fetch ran) they would describe no document.
UPDATE feeds
SET etag           = CAST(substr(?2, new.value ->> 1, new.value ->> 2) AS TEXT),
    last_modified  = CAST(substr(?2, new.value ->> 3, new.value ->> 4) AS TEXT),
    validators_url = CAST(substr(?2, new.value ->> 5, new.value ->> 6) AS TEXT)
FROM jsonb_each(?1) AS new
WHERE feeds.id = new.value ->> 0 AND feeds.content_hash IS NOT NULL
