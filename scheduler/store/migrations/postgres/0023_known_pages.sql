-- Pages that were added, whose feed was known already and took them in: they are erased some time later (store/moves.rs).
CREATE TABLE known_pages (
    feed_id bigint PRIMARY KEY REFERENCES feeds (id) ON DELETE CASCADE,
    at      bigint NOT NULL  -- time: merged since then
);
CREATE INDEX known_pages_by_time ON known_pages (at);
