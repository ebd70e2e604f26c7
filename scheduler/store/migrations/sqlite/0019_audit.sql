-- Which changes were requested, by whom, and with which outcome (store/audit.rs). The version before neither reads nor writes any of
-- it. AUTOINCREMENT: a number is never given twice, so that a page's cursor stays what it was.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,                  -- time of the request
    who     TEXT    NOT NULL,                  -- the name of a token, or loopback
    source  TEXT    NOT NULL,                  -- the caller's address
    action  TEXT    NOT NULL,                  -- method and route
    subject TEXT    NOT NULL,                  -- what it was about
    outcome TEXT    NOT NULL,                  -- in progress, done, refused, failed, the caller did not wait
    status  INTEGER NOT NULL,                  -- of the response; 0: none yet
    millis  INTEGER NOT NULL                   -- until the response
) STRICT;
