-- What callers note on feeds for themselves. Triggers keep the table of labels right, whoever writes.
ALTER TABLE feeds ADD COLUMN labels TEXT;       -- JSON list, sorted; NULL: none
ALTER TABLE feeds ADD COLUMN external_id TEXT;  -- the caller's own id; several feeds may have the same one

CREATE TABLE feed_labels (
    label   TEXT    NOT NULL,
    feed_id INTEGER NOT NULL,
    PRIMARY KEY (label, feed_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX feeds_by_external_id ON feeds (external_id) WHERE external_id IS NOT NULL;

CREATE TRIGGER labelled_feed_was_added AFTER INSERT ON feeds
WHEN NEW.labels IS NOT NULL BEGIN
    INSERT OR IGNORE INTO feed_labels (label, feed_id) SELECT value, NEW.id FROM json_each(NEW.labels);
END;

CREATE TRIGGER feed_changed_labels AFTER UPDATE OF labels ON feeds
WHEN OLD.labels IS NOT NEW.labels BEGIN
    DELETE FROM feed_labels WHERE feed_id = OLD.id AND label IN (SELECT value FROM json_each(OLD.labels));
    INSERT OR IGNORE INTO feed_labels (label, feed_id) SELECT value, NEW.id FROM json_each(NEW.labels);
END;

CREATE TRIGGER labelled_feed_was_erased AFTER DELETE ON feeds
WHEN OLD.labels IS NOT NULL BEGIN
    DELETE FROM feed_labels WHERE feed_id = OLD.id AND label IN (SELECT value FROM json_each(OLD.labels));
END;
