-- Feed $1 became feed $2.
UPDATE feeds
SET status = 'merged', version = version + 1, next_due = NULL, wake_at = NULL, failure = NULL, penalty = NULL, last_error = NULL, terms = '',
    merged_into = $2
WHERE id = $1
