-- The readers of a merged feed are not among those of the feed that it was merged into: a page that announces a feed of others.
ALTER TABLE feeds ADD COLUMN uncounted boolean NOT NULL DEFAULT false;
