-- A feed whose survivor was erased stayed merged: it was not polled, even after its URL was added again. Such feeds are removed, as
-- the transaction that erases a survivor now does.
UPDATE feeds SET status = 'removed', version = version + 1 WHERE status = 'merged' AND merged_into IS NULL;
