-- Rows: seq of a form that another follows.
DELETE FROM entries WHERE seq IN (SELECT value ->> 0 FROM jsonb_each(?1))
