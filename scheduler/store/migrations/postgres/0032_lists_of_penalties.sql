-- Lists of feeds in the penalty box because of one kind of failure, in the order of their numbers, as feeds_by_failure has failures. In
-- SQLite the index has this order already.
DROP INDEX feeds_by_penalty;
CREATE INDEX feeds_by_penalty ON feeds (penalty, (-id) DESC) WHERE penalty IS NOT NULL;
