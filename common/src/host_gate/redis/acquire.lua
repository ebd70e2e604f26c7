-- Redeems a ticket at the host KEYS[3] for the feed KEYS[4]. ARGV[3..]: gap, burst, ticket, version, deadline, nonce, how many
-- starts without a report are too many. Returns 'granted', 'reported', 'crashed', or when to ask again.
local gap, burst, ticket = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local version, deadline, nonce, too_many = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9])
local lost = opened()
local host, feed = read_host(KEYS[3]), read_feed(KEYS[4])

-- This very call has run before, and its answer was lost.
if feed.token == nonce and feed.token_end > now then
  return place(host, nonce) and 'granted' or 'crashed'
end

local known = take_place(host, ticket)
if known then write_host(KEYS[3], host) end
if feed.reported >= version and feed.reported_until > now then return 'reported' end
if not lost then return closed_until() end
if feed.token_end > now then return feed.token_end end
local earliest = math.max(held_until(host), allowed_from(host.started, gap, burst, lost))
if earliest > now then return earliest end
if not known then return now + math.max(gap, 1) end

feed.token, feed.token_end = nonce, deadline
if feed.started ~= version then feed.started, feed.starts = version, 0 end
if feed.starts >= too_many then
  write_feed(KEYS[4], feed)
  return 'crashed'
end
feed.starts = feed.starts + 1
write_feed(KEYS[4], feed)
charge_start(host, gap)
add_place(host, nonce, deadline)
write_host(KEYS[3], host)
return 'granted'
