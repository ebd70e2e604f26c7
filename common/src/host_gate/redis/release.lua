-- Releases what an acquire took at the host KEYS[key] and, if `has_feed`, for the feed KEYS[key + 1]. ARGV[arg..]: nonce, in how many
-- milliseconds the host's next start may be, or 0, and the caller's time; for a feed also its version, and for how many milliseconds it
-- counts as reported, or 0. The clocks may differ; if they differ by more than they may, because this server's was set ahead a moment
-- ago, the next start counts from the caller's time. Returns the gate's generation.
local nonce, next_start_in, callers_time = ARGV[arg], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
local OFFSET = 1000

local host = read_host(KEYS[key])
take_place(host, nonce)
if next_start_in > 0 then
  host.started = math.max(host.started, math.min(now, callers_time + OFFSET) + next_start_in)
end
host.reserved = math.max(host.reserved, host.started)
write_host(KEYS[key], host)

if has_feed then
  local version, reported_for = tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4])
  local feed = read_feed(KEYS[key + 1])
  local own = feed.token == nonce
  if own then feed.token, feed.token_end = NO_ID, 0 end
  if reported_for > 0 then
    -- A late release of an earlier version says nothing about the starts of this one.
    if version >= feed.started then feed.started, feed.starts = version, 0 end
    if feed.reported_until <= now or feed.reported <= version then
      feed.reported, feed.reported_until = version, now + reported_for
    end
  elseif own and feed.started == version then
    -- The worker survived the fetch. A second run of this script finds no token and does not count down again.
    feed.starts, feed.leased_until = math.max(feed.starts - 1, 0), 0
  end
  write_feed(KEYS[key + 1], feed)
end
return written_generation()
