-- Parks claimed feeds: ARGV[2..] are repeated tuples of feed, host, time, band and rank. A feed that is not under a
-- lease was removed or re-scored in the meantime; this claim no longer owns it.
local feeds = every(2, 5)
local where = find(feeds)
local hosts, entries = {}, {}
for i, feed in ipairs(feeds) do
  local at = 5 * i - 3
  local name, till, band, rank = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local old_band, score = where(i)
  if score and score >= LEASED then
    if score >= WOKEN then band, rank = 1, FRONT end
    drop(feed, old_band)
    local host = hosts[name] or { at = till, band = band, ranks = {}, leases = {} }
    hosts[name] = host
    host.leases[lease_end(score)] = true
    host.at, host.band = math.min(host.at, till), math.min(host.band, band)
    host.ranks[#host.ranks + 1] = rank_score(rank, band)
    host.ranks[#host.ranks + 1] = feed
    entries[#entries + 1] = feed
    entries[#entries + 1] = name
  end
end
write()
if #entries > 0 then many('HSET', parked, entries) end
for name, host in pairs(hosts) do
  many('ZADD', waiting_room(name), host.ranks)
  local head_band, at = head(name)
  -- The claim of one of these feeds set the head, in case that feed was not parked again.
  if at and host.leases[at] then at = nil end
  set_head(name, head_band, math.min(host.band, head_band or host.band), math.min(host.at, at or host.at))
end
