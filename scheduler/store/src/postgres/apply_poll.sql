-- Applies reports, sorted by feed, so that two batches lock rows in the same order. A row that has changed since it was read is
-- not updated. "rare" is what most polls have none of, as one JSON object, NULL for most: a column of a batch costs as much when it is
-- empty. Category, status and host are not in it if they do not change. The history keeps $11 bytes of earlier polls.
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
    history    = new.poll || substr(feeds.history, 1, $11)
FROM UNNEST(
        $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[],
        $9::bigint[], $10::text[]::jsonb[])
    AS new (id, version, audience_at, next_due, state, rhythm, terms, poll, polled_day, rare)
WHERE feeds.id = new.id
  AND feeds.version = new.version
  AND feeds.audience_at = new.audience_at
  AND feeds.wake_at IS NOT DISTINCT FROM (new.rare ->> 'woken_before')::bigint
