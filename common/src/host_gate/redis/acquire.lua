-- Redeems a ticket at the host KEYS[key] for the feed KEYS[key + 1]. ARGV[arg..]: gap, burst, ticket, version, deadline, nonce,
-- how many starts without a report are too many, the caller's isolation (0 none, 1 few other suspects, 2 alone), when the
-- caller gives up waiting, and when the job's lease ends. Returns 'granted', 'reported', 'crashed', 'suspect' (nothing was
-- taken: it needs isolation 1), 'alone' (2), or when to try again.
local gap, burst, ticket = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), ARGV[arg + 2]
local version, deadline, nonce = tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4]), ARGV[arg + 5]
local too_many, isolation = tonumber(ARGV[arg + 6]), tonumber(ARGV[arg + 7])
local gives_up, leased_until = tonumber(ARGV[arg + 8]), tonumber(ARGV[arg + 9])
-- The caller has released this nonce by now, or is about to: a grant would be for a start that never happens.
if now > gives_up then return now end
local lost = opened()
local host, feed = read_host(KEYS[key]), read_feed(KEYS[key + 1])

-- This very call has run before, and its answer was lost.
if feed.token == nonce and feed.token_end > now then
  return place(host, nonce) and 'granted' or 'crashed'
end

-- Of another epoch, or it would count as reported.
local repeated = feed.token == NO_ID and version % VERSIONS <= feed.started % VERSIONS
local refused
if feed.reported >= version and feed.reported_until > now then
  refused = 'reported'
elseif not lost then
  refused = closed_until()
elseif feed.token_end > now then
  refused = feed.token_end
elseif repeated and feed.leased_until > now then
  refused = feed.leased_until
else
  local earliest = math.max(held_until(host), allowed_from(host.started, gap, burst, lost))
  if earliest > now then
    refused = earliest
  elseif not place(host, ticket) then
    refused = now + math.max(gap, 1)
  end
end

if not refused then
  if feed.started ~= version then feed.started, feed.starts = version, 0 end
  local needed = math.min(feed.starts, 2)
  if feed.starts < too_many and isolation < needed then return needed == 1 and 'suspect' or 'alone' end
end
local taken = take_place(host, ticket)
if refused or feed.starts >= too_many then
  if taken then write_host(KEYS[key], host) end
  if refused then return refused end
  feed.token, feed.token_end = nonce, deadline
  write_feed(KEYS[key + 1], feed)
  return 'crashed'
end
feed.token, feed.token_end = nonce, deadline
feed.starts, feed.leased_until = feed.starts + 1, leased_until
write_feed(KEYS[key + 1], feed)
charge_start(host, gap)
add_place(host, nonce, deadline)
write_host(KEYS[key], host)
return 'granted'
