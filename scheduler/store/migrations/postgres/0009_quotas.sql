-- What a feed may still store today, how many rows it has, and what was left out: JSON. NULL: it has stored nothing since.
ALTER TABLE feeds ADD COLUMN quota text;
