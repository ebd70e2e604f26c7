-- Which feeds may miss entries, and which are silent: what is counted. The policy's memory has both too.
ALTER TABLE feeds ADD COLUMN gap_since INTEGER;     -- time of the last good poll before entries may have been missed; 0: not read yet; NULL: complete
ALTER TABLE feeds ADD COLUMN silent_since INTEGER;  -- time of the newest entry; NULL: not silent

-- Counted in feed_counts, for the store's numbers: live feeds of which nothing is missing, and live ones that are silent. A feed that
-- is added is neither.
-- By the version before, which does not know the column.
CREATE TRIGGER complete_feed_was_added AFTER INSERT ON feeds
WHEN NEW.gap_since IS NULL AND NEW.status = 'active' BEGIN
    INSERT INTO feed_counts (kind, name, feeds) VALUES ('standing', 'complete', 1)
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feeds + 1;
END;

CREATE TRIGGER feed_changed_completeness AFTER UPDATE OF gap_since, status ON feeds
WHEN (OLD.gap_since IS NULL AND OLD.status = 'active') <> (NEW.gap_since IS NULL AND NEW.status = 'active') BEGIN
    INSERT INTO feed_counts (kind, name, feeds)
    VALUES ('standing', 'complete', iif(NEW.gap_since IS NULL AND NEW.status = 'active', 1, -1))
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feeds + excluded.feeds;
END;

CREATE TRIGGER feed_changed_silence AFTER UPDATE OF silent_since, status ON feeds
WHEN (OLD.silent_since IS NOT NULL AND OLD.status = 'active') <> (NEW.silent_since IS NOT NULL AND NEW.status = 'active') BEGIN
    INSERT INTO feed_counts (kind, name, feeds)
    VALUES ('standing', 'silent', iif(NEW.silent_since IS NOT NULL AND NEW.status = 'active', 1, -1))
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feeds + excluded.feeds;
END;

CREATE TRIGGER complete_feed_was_erased AFTER DELETE ON feeds
WHEN OLD.status = 'active' AND (OLD.gap_since IS NULL OR OLD.silent_since IS NOT NULL) BEGIN
    UPDATE feed_counts SET feeds = feeds - 1
    WHERE kind = 'standing' AND (name = 'complete' AND OLD.gap_since IS NULL OR name = 'silent' AND OLD.silent_since IS NOT NULL);
END;

INSERT INTO feed_counts (kind, name, feeds) SELECT 'standing', 'complete', count(*) FROM feeds WHERE status = 'active';
