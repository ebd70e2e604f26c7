-- The oldest identities of feed $1, $3 of them, but for those whose newest form has one of the numbers $2 or one of the
-- fingerprints $4: what is still in the document would come again as new.
DELETE FROM entry_identities
WHERE feed_id = $1 AND identity IN (
    SELECT identity FROM entry_identities
    WHERE feed_id = $1 AND seq <> ALL ($2) AND fingerprint <> ALL ($4)
    ORDER BY seq
    LIMIT $3)
RETURNING seq
