-- Whose turn it is to pass events on to the exchange, and how far they are. The version before passes nothing on.
CREATE TABLE relay (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    cursor INTEGER NOT NULL,             -- the last seq that the exchange confirmed; all before it too
    holder TEXT    NOT NULL DEFAULT '',  -- which process passes on
    until  INTEGER NOT NULL DEFAULT 0    -- time at which it loses its turn unless it says that it goes on
) STRICT;

-- Nobody was listening before there was an exchange.
INSERT INTO relay (one, cursor) SELECT 1, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0);
