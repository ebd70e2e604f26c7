-- A host refuses us at ?2, by ?5 with the status ?6: its rest begins, ?3 long, twice as long each time, ?4 at most.
-- Nothing while it rests: requests that were in flight say nothing new. ?7: only a longer rest of a host that refuses
-- us still, according to one report.
INSERT INTO host_refusals (host, since, until, tries, failure, status)
SELECT ?1, ?2, ?2 + ?3, 1, ?5, ?6
WHERE NOT ?7 OR EXISTS (SELECT 1 FROM host_refusals WHERE host = ?1)
ON CONFLICT (host) DO UPDATE
SET until = ?2 + min(?4, ?3 << CAST(min(host_refusals.tries, 20) AS INTEGER)),
    tries = host_refusals.tries + 1, failure = excluded.failure, status = excluded.status
WHERE host_refusals.until <= ?2
