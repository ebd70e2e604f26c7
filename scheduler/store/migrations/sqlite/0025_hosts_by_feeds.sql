-- Hosts by the number of their feeds.
CREATE INDEX hosts_by_feeds ON feed_counts (feeds DESC, name) WHERE kind = 'host';
