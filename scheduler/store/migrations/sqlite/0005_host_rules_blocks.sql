-- What operators say about hosts while the fleet runs. The version before neither reads nor writes any of it.

-- Rules over those of the configuration, by domain.
CREATE TABLE host_rules (
    domain  TEXT    PRIMARY KEY,              -- in lower case
    listed  TEXT    NOT NULL,                 -- how a list of hosts names it: the domain, or *.domain when it is one shared host
    rule    TEXT    NOT NULL,                 -- JSON object with the keys of a [[host_rule]]
    changed INTEGER NOT NULL                  -- time
) STRICT, WITHOUT ROWID;

-- Hosts that are not asked by an operator's word. A block that was lifted stays, with the time 0: whoever missed the lifting
-- learns of it.
CREATE TABLE host_blocks (
    host          TEXT    PRIMARY KEY,
    blocked_until INTEGER NOT NULL            -- time
) STRICT, WITHOUT ROWID;

-- Counts changes of both, so that every scheduler can ask for them cheaply.
ALTER TABLE store ADD COLUMN host_orders INTEGER NOT NULL DEFAULT 0;
