-- Feed ?1 is a feed of its own again, due at ?2 by terms ?3, with memory ?4.
UPDATE feeds
SET status = 'active', version = version + 1, next_due = ?2, terms = ?3, state = ?4, hold_until = NULL, merged_into = NULL
WHERE id = ?1
