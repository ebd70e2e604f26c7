-- Hosts that refuse us on most of their feeds. The version before neither reads nor writes it.
CREATE TABLE host_refusals (
    host    TEXT PRIMARY KEY,
    since   INTEGER NOT NULL,                 -- time
    until   INTEGER NOT NULL,                 -- time: the end of its rest
    tries   INTEGER NOT NULL,                 -- rests so far
    failure TEXT NOT NULL,                 -- common::outcome::FailureKind
    status  INTEGER
) STRICT, WITHOUT ROWID;
