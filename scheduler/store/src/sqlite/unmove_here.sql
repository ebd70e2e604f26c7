-- Restores the previous URL of feed ?1, on host ?2 in category ?3, with memory ?4.
UPDATE feeds
SET url = moved_from, moved_from = NULL, host = ?2, category = ?3, state = ?4,
    version = version + 1,
    validators_url = CASE
        WHEN validators_url IS NULL AND (etag IS NOT NULL OR last_modified IS NOT NULL) THEN url  -- sent by the old one
        WHEN validators_url = moved_from THEN NULL
        ELSE validators_url END
WHERE id = ?1
