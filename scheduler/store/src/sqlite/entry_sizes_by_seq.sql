-- The bytes of text of these entries.
SELECT seq, coalesce(octet_length(title), 0) + coalesce(octet_length(summary), 0)
    + coalesce(octet_length(content), 0) + coalesce(octet_length(enclosures), 0) + coalesce(octet_length(details), 0)
FROM entries
WHERE seq IN (SELECT value FROM json_each(?1))
