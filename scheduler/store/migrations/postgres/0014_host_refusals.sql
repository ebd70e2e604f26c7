-- Hosts that refuse us on most of their feeds. The version before neither reads nor writes it.
CREATE TABLE host_refusals (
    host    text PRIMARY KEY,
    since   bigint NOT NULL,                 -- time
    until   bigint NOT NULL,                 -- time: the end of its rest
    tries   bigint NOT NULL,                 -- rests so far
    failure text NOT NULL,                 -- common::outcome::FailureKind
    status  bigint
);
