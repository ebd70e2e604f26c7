-- What callers note on feeds for themselves. Triggers keep the table of labels right, whoever writes.
ALTER TABLE feeds
    ADD COLUMN labels      text,              -- JSON list, sorted; NULL: none
    ADD COLUMN external_id text COLLATE "C";  -- the caller's own id; several feeds may have the same one

CREATE TABLE feed_labels (
    label   text   COLLATE "C" NOT NULL,
    feed_id bigint NOT NULL,
    PRIMARY KEY (label, feed_id)
);

-- In the order of -id, as the other filters' indexes: so no list is in the order of the primary key.
CREATE INDEX feeds_by_external_id ON feeds (external_id, (-id) DESC) WHERE external_id IS NOT NULL;

-- Functions find their tables whatever the search path of the writer.
CREATE FUNCTION feed_changed_labels() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM feed_labels
        WHERE feed_id = OLD.id AND label = ANY (ARRAY(SELECT jsonb_array_elements_text(OLD.labels::jsonb)));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO feed_labels (label, feed_id)
        SELECT name, NEW.id FROM jsonb_array_elements_text(NEW.labels::jsonb) AS names (name)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER labelled_feed_was_added AFTER INSERT ON feeds
    FOR EACH ROW WHEN (NEW.labels IS NOT NULL) EXECUTE FUNCTION feed_changed_labels();
CREATE TRIGGER feed_changed_labels AFTER UPDATE OF labels ON feeds
    FOR EACH ROW WHEN (OLD.labels IS DISTINCT FROM NEW.labels) EXECUTE FUNCTION feed_changed_labels();
CREATE TRIGGER labelled_feed_was_erased AFTER DELETE ON feeds
    FOR EACH ROW WHEN (OLD.labels IS NOT NULL) EXECUTE FUNCTION feed_changed_labels();
