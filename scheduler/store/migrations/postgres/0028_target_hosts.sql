-- The host and port of a subscription's target, as its URL has them: one scheduler at a time sends to each. A scheduler of the version
-- before ignores it: while both run, two schedulers may send to one host.
ALTER TABLE subscriptions ADD COLUMN target_host text
    GENERATED ALWAYS AS (coalesce(substring(target FROM '^[^:/]*://(?:[^/?#]*@)?([^/?#]*)'), target)) STORED;
