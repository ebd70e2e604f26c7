-- Redeems a ticket at the host KEYS[3] for the feed KEYS[4]. ARGV[4..]: gap, burst, ticket, version, deadline, nonce,
-- how many starts without a report are too many, the caller's isolation (0 none, 1 few other suspects, 2 alone), when the
-- caller gives up waiting, and when the job's lease ends. Returns 'granted', 'reported', 'crashed', 'suspect' (nothing was
-- taken: it needs isolation 1), 'alone' (2), or when to try again.
local gap, burst, ticket = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local version, deadline, nonce, too_many = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], tonumber(ARGV[10])
local isolation, gives_up, leased_until = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
-- The caller has released this nonce by now, or is about to: a grant would be for a start that never happens.
if now > gives_up then return now end
local lost = opened()
local host, feed = read_host(KEYS[3]), read_feed(KEYS[4])

-- This very call has run before, and its answer was lost.
if feed.token == nonce and feed.token_end > now then
  return place(host, nonce) and 'granted' or 'crashed'
end

local function refusal()
  if feed.reported >= version and feed.reported_until > now then return 'reported' end
  if not lost then return closed_until() end
  if feed.token_end > now then return feed.token_end end
  -- Of another epoch, or it would count as reported.
  local repeated = feed.token == NO_ID and version % VERSIONS <= feed.started % VERSIONS
  if repeated and feed.leased_until > now then return feed.leased_until end
  local earliest = math.max(held_until(host), allowed_from(host.started, gap, burst, lost))
  if earliest > now then return earliest end
  if not place(host, ticket) then return now + math.max(gap, 1) end
end

local refused = refusal()
if not refused then
  if feed.started ~= version then feed.started, feed.starts = version, 0 end
  local needed = math.min(feed.starts, 2)
  if feed.starts < too_many and isolation < needed then return needed == 1 and 'suspect' or 'alone' end
end
if take_place(host, ticket) then write_host(KEYS[3], host) end
if refused then return refused end

feed.token, feed.token_end = nonce, deadline
if feed.starts >= too_many then
  write_feed(KEYS[4], feed)
  return 'crashed'
end
feed.starts, feed.leased_until = feed.starts + 1, leased_until
write_feed(KEYS[4], feed)
charge_start(host, gap)
add_place(host, nonce, deadline)
write_host(KEYS[3], host)
return 'granted'
