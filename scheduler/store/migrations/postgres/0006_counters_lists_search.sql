-- What pages and lists need to answer at once in a fleet of millions. Triggers keep all of it, so that it is right whoever
-- writes, the version before included, and right in the very transaction that changes a feed.
-- Reads every feed once; whoever writes feeds waits meanwhile.

LOCK TABLE feeds IN SHARE ROW EXCLUSIVE MODE;

-- How many feeds there are of a kind: 'class' (name: category, a space, status), 'host', 'failure', 'penalty'.
CREATE TABLE feed_counts (
    kind  text   COLLATE "C" NOT NULL,
    name  text   COLLATE "C" NOT NULL,
    feeds bigint NOT NULL,
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 80);

-- What is still to be added to these. Nobody who changes a feed waits for another one's counter: he writes a line here, and
-- the schedulers add the lines up (counts_fold.sql). A count is the sum of both tables.
CREATE TABLE feed_count_changes (
    kind  text   COLLATE "C" NOT NULL,
    name  text   COLLATE "C" NOT NULL,
    feeds bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- What people search: of feed N its URL at place 2 N, its title at 2 N + 1. Beside feeds, because a row of feeds is written
-- with every poll. An index of its trigrams is made where the extension pg_trgm is to be had (store/postgres/search.rs).
CREATE TABLE feed_texts (
    place bigint PRIMARY KEY,
    text  text NOT NULL
);

-- Functions find their tables whatever the search path of whoever writes.

-- Who adds feeds holds the lock of URLs, as who adds lines up does (give_out_urls): no two wait for each other's counters.
CREATE FUNCTION feeds_were_added() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO feed_counts (kind, name, feeds)
    SELECT 'class', category || ' ' || status, count(*) FROM added GROUP BY category, status
    UNION ALL SELECT 'host', host, count(*) FROM added GROUP BY host
    UNION ALL SELECT 'failure', failure, count(*) FROM added WHERE failure IS NOT NULL GROUP BY failure
    UNION ALL SELECT 'penalty', penalty, count(*) FROM added WHERE penalty IS NOT NULL GROUP BY penalty
    ORDER BY 1, 2
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feed_counts.feeds + excluded.feeds;
    INSERT INTO feed_texts (place, text)
    SELECT 2 * id, url FROM added
    UNION ALL SELECT 2 * id + 1, title FROM added WHERE title IS NOT NULL
    ORDER BY 1;
    RETURN NULL;
END $$;

CREATE FUNCTION feed_was_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (OLD.category, OLD.status) <> (NEW.category, NEW.status) THEN
        INSERT INTO feed_count_changes (kind, name, feeds)
        VALUES ('class', OLD.category || ' ' || OLD.status, -1), ('class', NEW.category || ' ' || NEW.status, 1);
    END IF;
    IF OLD.host <> NEW.host THEN
        INSERT INTO feed_count_changes (kind, name, feeds) VALUES ('host', OLD.host, -1), ('host', NEW.host, 1);
    END IF;
    IF OLD.failure IS DISTINCT FROM NEW.failure THEN
        INSERT INTO feed_count_changes (kind, name, feeds)
        SELECT 'failure', name, feeds FROM (VALUES (OLD.failure, -1), (NEW.failure, 1)) AS change (name, feeds)
        WHERE name IS NOT NULL;
    END IF;
    IF OLD.penalty IS DISTINCT FROM NEW.penalty THEN
        INSERT INTO feed_count_changes (kind, name, feeds)
        SELECT 'penalty', name, feeds FROM (VALUES (OLD.penalty, -1), (NEW.penalty, 1)) AS change (name, feeds)
        WHERE name IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION feed_was_renamed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.url <> NEW.url THEN
        UPDATE feed_texts SET text = NEW.url WHERE place = 2 * NEW.id;
    END IF;
    IF NEW.title IS NULL THEN
        DELETE FROM feed_texts WHERE place = 2 * NEW.id + 1;
    ELSIF OLD.title IS DISTINCT FROM NEW.title THEN
        INSERT INTO feed_texts (place, text) VALUES (2 * NEW.id + 1, NEW.title)
        ON CONFLICT (place) DO UPDATE SET text = excluded.text;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION feed_was_erased() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO feed_count_changes (kind, name, feeds)
    SELECT kind, name, -1
    FROM (VALUES ('class', OLD.category || ' ' || OLD.status), ('host', OLD.host), ('failure', OLD.failure),
                 ('penalty', OLD.penalty)) AS gone (kind, name)
    WHERE name IS NOT NULL;
    DELETE FROM feed_texts WHERE place IN (2 * OLD.id, 2 * OLD.id + 1);
    RETURN NULL;
END $$;

CREATE TRIGGER feeds_were_added AFTER INSERT ON feeds
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION feeds_were_added();

-- The condition is looked at without calling the function: most polls change nothing of this.
CREATE TRIGGER feed_was_changed AFTER UPDATE OF category, status, host, failure, penalty ON feeds
    FOR EACH ROW
    WHEN (OLD.category <> NEW.category OR OLD.status <> NEW.status OR OLD.host <> NEW.host
          OR OLD.failure IS DISTINCT FROM NEW.failure OR OLD.penalty IS DISTINCT FROM NEW.penalty)
    EXECUTE FUNCTION feed_was_changed();

CREATE TRIGGER feed_was_renamed AFTER UPDATE OF url, title ON feeds
    FOR EACH ROW
    WHEN (OLD.url <> NEW.url OR OLD.title IS DISTINCT FROM NEW.title)
    EXECUTE FUNCTION feed_was_renamed();

CREATE TRIGGER feed_was_erased AFTER DELETE ON feeds
    FOR EACH ROW EXECUTE FUNCTION feed_was_erased();

INSERT INTO feed_counts (kind, name, feeds)
SELECT 'class', category || ' ' || status, count(*) FROM feeds GROUP BY category, status
UNION ALL SELECT 'host', host, count(*) FROM feeds GROUP BY host
UNION ALL SELECT 'failure', failure, count(*) FROM feeds WHERE failure IS NOT NULL GROUP BY failure
UNION ALL SELECT 'penalty', penalty, count(*) FROM feeds WHERE penalty IS NOT NULL GROUP BY penalty;

INSERT INTO feed_texts (place, text)
SELECT 2 * id, url FROM feeds
UNION ALL SELECT 2 * id + 1, title FROM feeds WHERE title IS NOT NULL;

-- Each filter of a list has its feeds in each of the list's orders, so that a page is read from its place on, whatever lies
-- before and behind it. The orders are of -id and -subscribers: so no such list is in the order of the primary key, and none
-- with a filter in that of feeds_by_readers, along which the planner would pass by all feeds of other kinds. A list by due time
-- has no index: every poll would write it.
DROP INDEX feeds_by_host, feeds_by_class, feeds_by_subscribers, feeds_by_failure;
CREATE INDEX feeds_by_readers          ON feeds (subscribers DESC, (-id) DESC);
CREATE INDEX feeds_by_host             ON feeds (host, (-id) DESC);
CREATE INDEX feeds_by_category         ON feeds (category, (-id) DESC);
CREATE INDEX feeds_by_category_readers ON feeds (category, (-subscribers), (-id) DESC);
CREATE INDEX feeds_by_status           ON feeds (status, (-id) DESC) WHERE status <> 'active';
CREATE INDEX feeds_by_status_readers   ON feeds (status, (-subscribers), (-id) DESC) WHERE status <> 'active';
CREATE INDEX feeds_by_failure          ON feeds (failure, (-id) DESC) WHERE failure IS NOT NULL;
CREATE INDEX feeds_by_failure_readers  ON feeds (failure, (-subscribers), (-id) DESC) WHERE failure IS NOT NULL;
CREATE INDEX host_holds_by_end         ON host_holds (held_until);
