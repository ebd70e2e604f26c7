-- The history of the database server that numbered the events: its identifier and timeline. After a failover to a copy that
-- lagged, or a restore elsewhere, it is another one, and so numbers may be given out again: then a new epoch begins.
ALTER TABLE store ADD COLUMN history text NOT NULL DEFAULT '';
