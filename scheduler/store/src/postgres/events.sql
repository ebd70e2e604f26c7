-- Events after $1, at most $2, each with its feed as it is now and the seq of its entry's newest form.
SELECT events.seq, events.at, events.kind, events.feed_id, feeds.url AS feed_url, feeds.host, feeds.merged_into,
       known.seq AS entry
FROM events
LEFT JOIN entry_identities AS known ON known.feed_id = events.feed_id AND known.identity = events.identity
LEFT JOIN feeds ON feeds.id = events.feed_id
WHERE events.seq > $1
ORDER BY events.seq
LIMIT $2
