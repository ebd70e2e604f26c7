-- What pages and lists need to answer at once in a fleet of a million. Triggers keep all of it, so that it is right whoever
-- writes, the version before included, and right in the very transaction that changes a feed.

-- How many feeds there are of a kind: 'class' (name: category, a space, status), 'host', 'failure', 'penalty'.
CREATE TABLE feed_counts (
    kind  TEXT    NOT NULL,
    name  TEXT    NOT NULL,
    feeds INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- What people search, by its trigrams: of feed N its URL at place 2 N, its title at 2 N + 1. It keeps no texts, and of a
-- trigram no more than the places that have it: what it finds is compared with the feed.
CREATE VIRTUAL TABLE feed_texts USING fts5(text, content = '', tokenize = 'trigram', detail = 'none', columnsize = 0);

CREATE TRIGGER feed_was_added AFTER INSERT ON feeds BEGIN
    INSERT INTO feed_counts (kind, name, feeds) VALUES ('class', NEW.category || ' ' || NEW.status, 1), ('host', NEW.host, 1)
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feeds + 1;
    INSERT INTO feed_texts (rowid, text) VALUES (2 * NEW.id, NEW.url);
END;

-- Only of rows that are added with them, which feeds are not as yet.
CREATE TRIGGER troubled_feed_was_added AFTER INSERT ON feeds
WHEN NEW.failure IS NOT NULL OR NEW.penalty IS NOT NULL OR NEW.title IS NOT NULL BEGIN
    INSERT INTO feed_counts (kind, name, feeds)
    SELECT kind, name, 1 FROM (SELECT 'failure' AS kind, NEW.failure AS name UNION ALL SELECT 'penalty', NEW.penalty)
    WHERE name IS NOT NULL
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feeds + 1;
    INSERT INTO feed_texts (rowid, text) SELECT 2 * NEW.id + 1, NEW.title WHERE NEW.title IS NOT NULL;
END;

CREATE TRIGGER feed_changed_class AFTER UPDATE OF category, status ON feeds
WHEN OLD.category <> NEW.category OR OLD.status <> NEW.status BEGIN
    UPDATE feed_counts SET feeds = feeds - 1 WHERE kind = 'class' AND name = OLD.category || ' ' || OLD.status;
    INSERT INTO feed_counts (kind, name, feeds) VALUES ('class', NEW.category || ' ' || NEW.status, 1)
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feeds + 1;
END;

CREATE TRIGGER feed_changed_host AFTER UPDATE OF host ON feeds
WHEN OLD.host <> NEW.host BEGIN
    UPDATE feed_counts SET feeds = feeds - 1 WHERE kind = 'host' AND name = OLD.host;
    DELETE FROM feed_counts WHERE kind = 'host' AND name = OLD.host AND feeds = 0;
    INSERT INTO feed_counts (kind, name, feeds) VALUES ('host', NEW.host, 1)
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feeds + 1;
END;

CREATE TRIGGER feed_changed_failure AFTER UPDATE OF failure ON feeds
WHEN OLD.failure IS NOT NEW.failure BEGIN
    UPDATE feed_counts SET feeds = feeds - 1 WHERE kind = 'failure' AND name = OLD.failure;
    INSERT INTO feed_counts (kind, name, feeds) SELECT 'failure', NEW.failure, 1 WHERE NEW.failure IS NOT NULL
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feeds + 1;
END;

CREATE TRIGGER feed_changed_penalty AFTER UPDATE OF penalty ON feeds
WHEN OLD.penalty IS NOT NEW.penalty BEGIN
    UPDATE feed_counts SET feeds = feeds - 1 WHERE kind = 'penalty' AND name = OLD.penalty;
    INSERT INTO feed_counts (kind, name, feeds) SELECT 'penalty', NEW.penalty, 1 WHERE NEW.penalty IS NOT NULL
    ON CONFLICT (kind, name) DO UPDATE SET feeds = feeds + 1;
END;

CREATE TRIGGER feed_changed_url AFTER UPDATE OF url ON feeds
WHEN OLD.url <> NEW.url BEGIN
    INSERT INTO feed_texts (feed_texts, rowid, text) VALUES ('delete', 2 * OLD.id, OLD.url);
    INSERT INTO feed_texts (rowid, text) VALUES (2 * NEW.id, NEW.url);
END;

CREATE TRIGGER feed_changed_title AFTER UPDATE OF title ON feeds
WHEN OLD.title IS NOT NEW.title BEGIN
    INSERT INTO feed_texts (feed_texts, rowid, text) SELECT 'delete', 2 * OLD.id + 1, OLD.title WHERE OLD.title IS NOT NULL;
    INSERT INTO feed_texts (rowid, text) SELECT 2 * NEW.id + 1, NEW.title WHERE NEW.title IS NOT NULL;
END;

CREATE TRIGGER feed_was_erased AFTER DELETE ON feeds BEGIN
    UPDATE feed_counts SET feeds = feeds - 1
    WHERE (kind, name) IN (VALUES ('class', OLD.category || ' ' || OLD.status), ('host', OLD.host),
                                  ('failure', OLD.failure), ('penalty', OLD.penalty));
    DELETE FROM feed_counts WHERE kind = 'host' AND name = OLD.host AND feeds = 0;
    INSERT INTO feed_texts (feed_texts, rowid, text) VALUES ('delete', 2 * OLD.id, OLD.url);
    INSERT INTO feed_texts (feed_texts, rowid, text) SELECT 'delete', 2 * OLD.id + 1, OLD.title WHERE OLD.title IS NOT NULL;
END;

INSERT INTO feed_counts (kind, name, feeds)
SELECT 'class', category || ' ' || status, count(*) FROM feeds GROUP BY category, status
UNION ALL SELECT 'host', host, count(*) FROM feeds GROUP BY host
UNION ALL SELECT 'failure', failure, count(*) FROM feeds WHERE failure IS NOT NULL GROUP BY failure
UNION ALL SELECT 'penalty', penalty, count(*) FROM feeds WHERE penalty IS NOT NULL GROUP BY penalty;

INSERT INTO feed_texts (rowid, text) SELECT 2 * id, url FROM feeds;
INSERT INTO feed_texts (rowid, text) SELECT 2 * id + 1, title FROM feeds WHERE title IS NOT NULL;

-- Each filter of a list has its feeds in each of the list's orders (behind its columns an index of SQLite has the feed's
-- number), so that a page is read from its place on, whatever lies before and behind it. A list by due time has no index:
-- every poll would write it.
DROP INDEX feeds_by_class;
DROP INDEX feeds_by_subscribers;
CREATE INDEX feeds_by_readers          ON feeds (subscribers DESC);
CREATE INDEX feeds_by_category         ON feeds (category);
CREATE INDEX feeds_by_category_readers ON feeds (category, subscribers DESC);
CREATE INDEX feeds_by_status           ON feeds (status) WHERE status <> 'active';
CREATE INDEX feeds_by_status_readers   ON feeds (status, subscribers DESC) WHERE status <> 'active';
CREATE INDEX feeds_by_failure_readers  ON feeds (failure, subscribers DESC) WHERE failure IS NOT NULL;
CREATE INDEX host_holds_by_end         ON host_holds (held_until);
