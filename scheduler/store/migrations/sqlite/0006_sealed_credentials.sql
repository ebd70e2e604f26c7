-- The login of a feed, encrypted (common/src/secrets.rs); NULL: none. Its name for the identity is in credentials. The version
-- before neither reads nor writes it, and would ask for such a feed without it: there are none before the first is added.
ALTER TABLE feeds ADD COLUMN sealed BLOB;

-- For the search for logins of an old key; polls never touch it.
CREATE INDEX feeds_sealed ON feeds (id) WHERE sealed IS NOT NULL;
