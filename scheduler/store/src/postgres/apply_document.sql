-- Polls that brought a complete and accepted document, whose feeds are locked. What every poll changes is as in apply_poll.sql. The document
-- replaces everything known from the previous one, except the feed's title and site: some kinds of feed do not repeat them in each
-- document.
UPDATE feeds
SET version    = feeds.version + 1,
    category   = coalesce(new.category, feeds.category),
    status     = coalesce(new.status, feeds.status),
    host       = coalesce(new.host, feeds.host),
    next_due   = new.next_due,
    wake_at    = new.wake_at,
    hold_until = new.hold_until,
    failure    = new.failure,
    penalty    = new.penalty,
    state      = new.state,
    rhythm     = new.rhythm,
    terms      = new.terms,
    last_error = new.error,
    gap_since  = new.gap_since,
    silent_since = new.silent_since,
    archive    = new.archive,
    polled_day = new.polled_day,
    history    = new.poll || substr(feeds.history, 1, $18),
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
        $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[],
        $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::bytea[], $15::bytea[], $16::bytea[],
        $17::text[], $19::bigint[], $20::bigint[], $21::text[],
        $22::bigint[],
        $23::bigint[], $24::text[], $25::text[], $26::text[], $27::bytea[], $28::text[], $29::text[], $30::text[],
        $31::text[], $32::text[], $33::bytea[], $34::text[], $35::text[])
    AS new (
        id, version, audience_at, woken_before, category, status, host, next_due,
        wake_at, hold_until, failure, penalty, state, rhythm, terms, poll, error, gap_since, silent_since, archive,
        polled_day,
        entries, etag, last_modified, validators_url, content_hash, title, link, hub,
        self_link, cloud, known, onward, quota)
WHERE feeds.id = new.id
