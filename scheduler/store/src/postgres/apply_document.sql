-- Polls that brought a complete and accepted document, whose feeds are locked. What every poll changes is as in apply_poll.sql. The document
-- replaces everything known from the previous one, except the feed's title and site: some kinds of feed do not repeat them in each
-- document.
UPDATE feeds
SET version    = feeds.version + 1,
    category   = coalesce(new.rare ->> 'category', feeds.category),
    status     = coalesce(new.rare ->> 'status', feeds.status),
    host       = coalesce(new.rare ->> 'host', feeds.host),
    next_due   = new.next_due,
    wake_at    = (new.rare ->> 'wake_at')::bigint,
    hold_until = (new.rare ->> 'hold_until')::bigint,
    failure    = new.rare ->> 'failure',
    penalty    = new.rare ->> 'penalty',
    state      = new.state,
    rhythm     = new.rhythm,
    terms      = new.terms,
    last_error = new.rare ->> 'error',
    gap_since  = (new.rare ->> 'gap_since')::bigint,
    silent_since = (new.rare ->> 'silent_since')::bigint,
    archive    = new.rare ->> 'archive',
    polled_day = new.polled_day,
    history    = new.poll || substr(feeds.history, 1, $11),
    entries        = feeds.entries + new.entries,
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
        $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[],
        $9::bigint[], $10::text[]::jsonb[],
        $12::bigint[], $13::text[], $14::text[], $15::text[], $16::bytea[], $17::text[], $18::text[], $19::text[],
        $20::text[], $21::text[], $22::bytea[], $23::text[], $24::text[])
    AS new (
        id, version, audience_at, next_due, state, rhythm, terms, poll, polled_day, rare,
        entries, etag, last_modified, validators_url, content_hash, title, link, hub,
        self_link, cloud, known, onward, quota)
WHERE feeds.id = new.id
