-- Shared by the scripts that know a feed's guard: the live permit (`token`, its end), the version that was reported and
-- until when that is remembered, how often which version was started without a report, and when the lease of the last started
-- job ends. Packed: eight bytes, then six doubles, of which programs before the last one read and write five.

local NO_ID = string.rep('\0', 8)
-- Starts without a report are remembered for a day: longer than a feed takes to be tried three times.
local STARTS_LIFE = 86400000
-- Versions of one epoch: `Version::in_epoch` in common/src/url.rs.
local VERSIONS = 2 ^ 40
-- Bytes before the end of the lease.
local LEASE_AT = 48

local function read_feed(key)
  local packed = redis.call('GET', key)
  if not packed then
    return { token = NO_ID, token_end = 0, reported = -1, reported_until = 0, started = -1, starts = 0, leased_until = 0 }
  end
  local token, token_end, reported, reported_until, started, starts = struct.unpack('>c8ddddd', packed)
  local leased_until = #packed > LEASE_AT and struct.unpack('>d', packed, LEASE_AT + 1) or 0
  return { token = token, token_end = token_end, reported = reported, reported_until = reported_until, started = started,
    starts = starts, leased_until = leased_until }
end

local function write_feed(key, feed)
  local latest = math.max(feed.token_end, feed.reported_until, feed.leased_until)
  if feed.starts > 0 then latest = math.max(latest, now + STARTS_LIFE) end
  if latest > now then
    local packed = struct.pack('>c8dddddd', feed.token, feed.token_end, feed.reported, feed.reported_until, feed.started,
      feed.starts, feed.leased_until)
    redis.call('SET', key, packed, 'PX', latest - now + SLACK)
  else
    redis.call('DEL', key)
  end
end
