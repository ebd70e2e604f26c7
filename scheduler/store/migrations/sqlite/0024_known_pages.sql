-- Pages that were added, whose feed was known already and took them in: they are erased some time later (store/moves.rs).
CREATE TABLE known_pages (
    feed_id INTEGER PRIMARY KEY REFERENCES feeds (id) ON DELETE CASCADE,
    at      INTEGER NOT NULL  -- time: merged since then
) STRICT;
CREATE INDEX known_pages_by_time ON known_pages (at);
