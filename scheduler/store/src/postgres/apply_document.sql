-- A complete and accepted document replaces everything known from the previous one, except the feed's title and site: some kinds
-- of feed do not repeat them in each document.
UPDATE feeds
SET entries        = feeds.entries + new.entries,
    etag           = new.etag,
    last_modified  = new.last_modified,
    validators_url = new.validators_url,
    content_hash   = new.content_hash,
    title          = coalesce(new.title, feeds.title),
    link           = coalesce(new.link, feeds.link),
    hub            = new.hub,
    self_link      = new.self_link,
    cloud          = new.cloud,
    known          = new.known,
    onward         = new.onward,
    quota          = coalesce(new.quota, feeds.quota)
FROM UNNEST(
        $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::text[], $12::bytea[], $13::text[], $14::text[])
    AS new (
        id, entries, etag, last_modified, validators_url, content_hash, title, link, hub,
        self_link, cloud, known, onward, quota)
WHERE feeds.id = new.id
