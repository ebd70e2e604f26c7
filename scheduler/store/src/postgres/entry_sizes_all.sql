-- The bytes of text of entries after $1, at most $2. Lengths are known without reading the texts.
SELECT (coalesce(octet_length(title), 0) + coalesce(octet_length(summary), 0)
    + coalesce(octet_length(content), 0) + coalesce(octet_length(enclosures), 0) + coalesce(octet_length(details), 0))::bigint
FROM entries
WHERE seq > $1
ORDER BY seq
LIMIT $2
