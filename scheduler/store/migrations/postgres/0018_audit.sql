-- Which changes were requested, by whom, and with which outcome (store/audit.rs). The version before neither reads nor writes any of
-- it.
CREATE TABLE audit (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      bigint NOT NULL,                   -- time of the request
    who     text   NOT NULL,                   -- the name of a token, or loopback
    source  text   NOT NULL,                   -- the caller's address
    action  text   NOT NULL,                   -- method and route
    subject text   NOT NULL,                   -- what it was about
    outcome text   NOT NULL,                   -- in progress, done, refused, failed, the caller did not wait
    status  bigint NOT NULL,                   -- of the response; 0: none yet
    millis  bigint NOT NULL                    -- until the response
);
