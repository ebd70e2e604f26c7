-- At most $2 feeds that pings reach and whose site is one of the addresses $1.
SELECT found.id FROM unnest($1::text[]) AS site (link) CROSS JOIN LATERAL (
    SELECT id FROM feeds
    WHERE hashtextextended(feeds.link, 0) = hashtextextended(site.link, 0) AND feeds.link = site.link AND feeds.link IS NOT NULL
      AND status IN ('active', 'blacklisted', 'gone') AND NOT private AND credentials = ''
    ORDER BY -id DESC
    LIMIT $2
) AS found
ORDER BY found.id
LIMIT $2
