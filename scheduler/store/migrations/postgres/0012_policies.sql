-- Policy and host rules of the configuration, as the schedulers of the fleet agreed on them. The newest version is in force; of
-- older ones the hash stays, so that an old file is recognised. The version before neither reads nor writes any of it.
CREATE TABLE policies (
    version    bigint PRIMARY KEY,
    hash       text   NOT NULL,              -- common::accepted::hash
    text       text   NOT NULL,              -- common::accepted::text, JSON; empty in older versions
    accepted   bigint NOT NULL,              -- time
    offered_by text   NOT NULL               -- a token's name, 'signal', 'start'
);
