-- A feed whose survivor was erased stayed merged, and so did those that had been merged into it: none was polled, even after its URL was
-- added again. Such feeds are removed, as the transaction that erases a survivor now does.
WITH RECURSIVE lost (id) AS (
    SELECT id FROM feeds WHERE status = 'merged' AND merged_into IS NULL
    UNION
    SELECT feeds.id FROM feeds JOIN lost ON feeds.merged_into = lost.id WHERE feeds.status = 'merged'
)
UPDATE feeds SET status = 'removed', version = version + 1, merged_into = NULL WHERE id IN (SELECT id FROM lost);
