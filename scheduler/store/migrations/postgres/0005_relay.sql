-- Whose turn it is to pass events on to the exchange, and how far they are. The version before passes nothing on.
CREATE TABLE relay (
    one    smallint PRIMARY KEY CHECK (one = 1),
    cursor bigint   NOT NULL,             -- the last seq that the exchange confirmed; all before it too
    holder text     NOT NULL DEFAULT '',  -- which process passes on
    until  bigint   NOT NULL DEFAULT 0    -- time at which it loses its turn unless it says that it goes on
) WITH (fillfactor = 10);

-- Nobody was listening before there was an exchange.
INSERT INTO relay (one, cursor) SELECT 1, seq FROM store;
