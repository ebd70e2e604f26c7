-- Rows: feed, identity, seq, fingerprint.
INSERT INTO entry_identities (feed_id, identity, seq, fingerprint)
SELECT value ->> 0, substr(?2, value ->> 1, value ->> 2), value ->> 3, value ->> 4
FROM jsonb_each(?1)
WHERE true
ON CONFLICT (feed_id, identity) DO UPDATE SET seq = excluded.seq, fingerprint = excluded.fingerprint
