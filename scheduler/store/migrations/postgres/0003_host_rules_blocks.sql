-- What operators say about hosts while the fleet runs. The version before neither reads nor writes any of it.

-- Rules over those of the configuration, by domain.
CREATE TABLE host_rules (
    domain  text   COLLATE "C" PRIMARY KEY,   -- in lower case
    listed  text   COLLATE "C" NOT NULL,      -- how a list of hosts names it: the domain, or *.domain when it is one shared host
    rule    text   NOT NULL,                  -- JSON object with the keys of a [[host_rule]]
    changed bigint NOT NULL                   -- time
);

-- Hosts that are not asked by an operator's word. A block that was lifted stays, with the time 0: whoever missed the lifting
-- learns of it.
CREATE TABLE host_blocks (
    host          text   COLLATE "C" PRIMARY KEY,
    blocked_until bigint NOT NULL             -- time
);

-- Counts changes of both, so that every scheduler can ask for them cheaply.
ALTER TABLE store ADD COLUMN host_orders bigint NOT NULL DEFAULT 0;
