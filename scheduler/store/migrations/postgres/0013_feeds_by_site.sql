-- Feeds by the site that they name: a ping that names a site instead of a feed reaches them. (A hash: links may be longer than
-- an entry of a tree allows.)
CREATE INDEX feeds_by_link ON feeds USING hash (link) WHERE link IS NOT NULL;
