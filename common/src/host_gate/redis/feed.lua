-- Shared by the scripts that know a feed's guard: the live permit (`token`, its end), the version that was reported and
-- until when that is remembered, and how often which version was started without a report. Packed: two doubles and eight
-- bytes, then three doubles.

local NO_ID = string.rep('\0', 8)
-- Starts without a report are remembered for a day: longer than a feed takes to be tried three times.
local STARTS_LIFE = 86400000

local function read_feed(key)
  local packed = redis.call('GET', key)
  if not packed then
    return { token = NO_ID, token_end = 0, reported = -1, reported_until = 0, started = -1, starts = 0 }
  end
  local feed = {}
  feed.token, feed.token_end, feed.reported, feed.reported_until, feed.started, feed.starts =
    struct.unpack('>c8ddddd', packed)
  return feed
end

local function write_feed(key, feed)
  local latest = math.max(feed.token_end, feed.reported_until)
  if feed.starts > 0 then latest = math.max(latest, now + STARTS_LIFE) end
  if latest > now then
    local packed = struct.pack('>c8ddddd', feed.token, feed.token_end, feed.reported, feed.reported_until, feed.started,
      feed.starts)
    redis.call('SET', key, packed, 'PX', latest - now + SLACK)
  else
    redis.call('DEL', key)
  end
end
