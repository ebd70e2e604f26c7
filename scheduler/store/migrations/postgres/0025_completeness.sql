-- Which feeds may miss entries, and which are silent: what is counted. The policy's memory has both too.
ALTER TABLE feeds ADD COLUMN gap_since bigint;     -- time of the last good poll before entries may have been missed; 0: not read yet; NULL: complete
ALTER TABLE feeds ADD COLUMN silent_since bigint;  -- time of the newest entry; NULL: not silent

-- Counted in feed_count_changes, for the store's numbers: live feeds of which nothing is missing, and live ones that are silent. A
-- feed that is added is neither.
CREATE FUNCTION feed_changed_standing() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO feed_count_changes (kind, name, feeds)
    SELECT 'standing', name, is_now::integer - was::integer
    FROM (VALUES
        ('complete', OLD.gap_since IS NULL AND OLD.status = 'active',
                     TG_OP <> 'DELETE' AND NEW.gap_since IS NULL AND NEW.status = 'active'),
        ('silent', OLD.silent_since IS NOT NULL AND OLD.status = 'active',
                   TG_OP <> 'DELETE' AND NEW.silent_since IS NOT NULL AND NEW.status = 'active')
    ) AS standing (name, was, is_now)
    WHERE was <> is_now;
    RETURN NULL;
END $$;

CREATE TRIGGER feed_changed_standing AFTER UPDATE OF gap_since, silent_since, status ON feeds
    FOR EACH ROW
    WHEN ((OLD.gap_since IS NULL AND OLD.status = 'active') <> (NEW.gap_since IS NULL AND NEW.status = 'active')
          OR (OLD.silent_since IS NOT NULL AND OLD.status = 'active') <> (NEW.silent_since IS NOT NULL AND NEW.status = 'active'))
    EXECUTE FUNCTION feed_changed_standing();

CREATE TRIGGER feed_with_standing_was_erased AFTER DELETE ON feeds
    FOR EACH ROW
    WHEN (OLD.status = 'active' AND (OLD.gap_since IS NULL OR OLD.silent_since IS NOT NULL))
    EXECUTE FUNCTION feed_changed_standing();

-- Feeds that the version before adds were not read yet.
ALTER TABLE feeds ALTER COLUMN gap_since SET DEFAULT 0;
INSERT INTO feed_counts (kind, name, feeds) SELECT 'standing', 'complete', count(*) FROM feeds WHERE status = 'active';
