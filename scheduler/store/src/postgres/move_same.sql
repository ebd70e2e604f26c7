-- Feed $1 is found at URL $2 on host $3 in category $4 from now on. It is the same document: all that is known of it
-- stays, validators with the URL that sent them.
UPDATE feeds
SET moved_from = url, url = $2, url_digest = sha256(convert_to($2, 'UTF8')), host = $3, category = $4,
    version = version + 1,
    validators_url = CASE
        WHEN validators_url IS NULL AND (etag IS NOT NULL OR last_modified IS NOT NULL) THEN url  -- the old one gave them
        WHEN validators_url = $2 THEN NULL
        ELSE validators_url END
WHERE id = $1
