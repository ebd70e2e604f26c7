-- Feed ?1, whose login was sealed as ?2: it is now sealed as ?4, and its name is ?3, unless another feed has that one.
UPDATE feeds
SET sealed = ?4,
    credentials = CASE
        WHEN EXISTS (
            SELECT 1 FROM feeds AS other
            WHERE other.url = feeds.url AND other.credentials = ?3 AND other.id <> feeds.id)
        THEN credentials ELSE ?3 END
WHERE id = ?1 AND sealed = ?2
