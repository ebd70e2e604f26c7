-- Feeds by the site that they name: a ping that names a site instead of a feed reaches them. By the link's hash, because links may be
-- longer than an entry of a tree allows; in the order of numbers, because many feeds may name one site and only the first are wanted.
CREATE INDEX feeds_by_link ON feeds (hashtextextended(link, 0), (-id) DESC)
    WHERE link IS NOT NULL AND status IN ('active', 'blacklisted', 'gone') AND NOT private AND credentials = '';
