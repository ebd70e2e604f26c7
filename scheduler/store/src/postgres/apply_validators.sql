-- Validators belong to an accepted document: where none is known (they were forgotten while the fetch ran) they would
-- describe no document.
UPDATE feeds
SET etag           = new.etag,
    last_modified  = new.last_modified,
    validators_url = new.validators_url
FROM UNNEST($1::bigint[], $2::text[], $3::text[], $4::text[]) AS new (id, etag, last_modified, validators_url)
WHERE feeds.id = new.id AND feeds.content_hash IS NOT NULL
