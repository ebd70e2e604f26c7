-- More orders of lists. The version before reads none of it. What it writes meanwhile leaves polled_day as it is: such a feed is listed
-- as polled too long ago until its next poll.

-- Days since 1970 until the last poll; 0: none yet, or none since this migration. A day, because an index of times would be written
-- with every poll.
ALTER TABLE feeds ADD COLUMN polled_day INTEGER NOT NULL DEFAULT 0;
CREATE INDEX feeds_by_last_poll ON feeds (polled_day);

-- Changes by what they have in each column, the newest first. They are rarely written.
CREATE INDEX audit_by_who     ON audit (who, id DESC);
CREATE INDEX audit_by_action  ON audit (action, id DESC);
CREATE INDEX audit_by_subject ON audit (subject, id DESC);
CREATE INDEX audit_by_outcome ON audit (outcome, id DESC);
