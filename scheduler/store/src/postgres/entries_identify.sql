INSERT INTO entry_identities (feed_id, identity, seq, fingerprint)
SELECT feed_id, identity, seq, fingerprint
FROM UNNEST($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[]) AS new (feed_id, identity, seq, fingerprint)
ON CONFLICT (feed_id, identity) DO UPDATE SET seq = excluded.seq, fingerprint = excluded.fingerprint
