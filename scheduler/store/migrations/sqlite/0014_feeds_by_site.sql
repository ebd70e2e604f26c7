-- Feeds by the site that they name: a ping that names a site instead of a feed reaches them.
CREATE INDEX feeds_by_link ON feeds (link)
    WHERE link IS NOT NULL AND status IN ('active', 'blacklisted', 'gone') AND NOT private AND credentials = x'';
