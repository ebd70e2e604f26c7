-- Feed ?1 is a feed of its own again, due at ?2 by terms ?3, or when its server's hold ends, with memory ?4.
UPDATE feeds
SET status = 'active', version = version + 1, next_due = max(?2, coalesce(hold_until, 0)), terms = ?3, state = ?4, merged_into = NULL
WHERE id = ?1
