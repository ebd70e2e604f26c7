-- The rule of domain $1, which lists name $2: $3, at $4; none when it would be one more than $5.
INSERT INTO host_rules (domain, listed, rule, changed)
SELECT $1::text, $2::text, $3::text, $4::bigint
WHERE (SELECT count(*) FROM host_rules WHERE domain <> $1) < $5
ON CONFLICT (domain) DO UPDATE SET listed = excluded.listed, rule = excluded.rule, changed = excluded.changed
