-- What entries and feeds say beside what the program itself looks at. The version before neither reads nor writes any of it.

-- Categories, language, links and first words of an entry: JSON object (store/row.rs); NULL: none. An entry that is stored
-- already gets its own when its text changes: the column is no part of the fingerprint, so that nothing is announced anew.
ALTER TABLE entries ADD COLUMN details TEXT;

-- The next page, the archive before, a new address, an end: JSON object; NULL: the last document said none of it.
ALTER TABLE feeds ADD COLUMN onward TEXT;
