-- Rows: feed, further entries, etag, last modified, URL of these two, content hash, title, link, hub, self link, cloud, known
-- entries, what follows, quota (null: unchanged). A complete and accepted document replaces everything known from the previous
-- one, except the feed's title and site: some kinds of feed do not repeat them in each document.
UPDATE feeds
SET entries        = entries + (new.value ->> 1),
    etag           = CAST(substr(?2, new.value ->> 2,  new.value ->> 3)  AS TEXT),
    last_modified  = CAST(substr(?2, new.value ->> 4,  new.value ->> 5)  AS TEXT),
    validators_url = CAST(substr(?2, new.value ->> 6,  new.value ->> 7)  AS TEXT),
    content_hash   =      substr(?2, new.value ->> 8,  new.value ->> 9),
    title          = coalesce(CAST(substr(?2, new.value ->> 10, new.value ->> 11) AS TEXT), title),
    link           = coalesce(CAST(substr(?2, new.value ->> 12, new.value ->> 13) AS TEXT), link),
    hub            = CAST(substr(?2, new.value ->> 14, new.value ->> 15) AS TEXT),
    self_link      = CAST(substr(?2, new.value ->> 16, new.value ->> 17) AS TEXT),
    cloud          = CAST(substr(?2, new.value ->> 18, new.value ->> 19) AS TEXT),
    known          =      substr(?2, new.value ->> 20, new.value ->> 21),
    onward         = CAST(substr(?2, new.value ->> 22, new.value ->> 23) AS TEXT),
    quota          = coalesce(CAST(substr(?2, new.value ->> 24, new.value ->> 25) AS TEXT), quota)
FROM jsonb_each(?1) AS new
WHERE feeds.id = new.value ->> 0
