-- A feed that turned out to be another one under a second URL says which one it became.
-- Safe beside the version before: it neither reads nor writes the column.
ALTER TABLE feeds ADD COLUMN merged_into INTEGER REFERENCES feeds (id) ON DELETE SET NULL;

CREATE INDEX feeds_by_survivor ON feeds (merged_into) WHERE merged_into IS NOT NULL;
