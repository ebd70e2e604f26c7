-- Shared by the schedule's scripts: the state of feeds and heads in one shard.
--
-- KEYS[1..4] are the sets of the bands, most urgent first: feeds by score. KEYS[5..8] are the heads of hosts with parked feeds,
-- by band and time. KEYS[9] says at which host a feed is parked; `KEYS[9]:HOST` holds that host's parked feeds by rank. All keys of
-- a shard carry one hash tag. ARGV[1] is a time for tests; below zero this server's clock is read. Times are milliseconds since
-- 1970.
--
-- A feed's score encodes its whole state, so that it needs no second entry. A waiting feed's score is its due time, a
-- leased feed's is LEASED plus the end of its lease, and that of a feed woken during a lease is WOKEN plus that end.

local LEASED = 281474976710656
local WOKEN = 2 * LEASED
-- The rank of a woken feed: before all others of its host. The fraction of a rank is the band, in quarters.
local FRONT = -562949953421312

local bands = { KEYS[1], KEYS[2], KEYS[3], KEYS[4] }
local heads = { KEYS[5], KEYS[6], KEYS[7], KEYS[8] }
local parked = KEYS[9]
local now = tonumber(ARGV[1])
if now < 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- How long a call is remembered, in case it is repeated after a lost response.
local REMEMBERED = 3000
-- The number of values that Lua can pass in one call is limited to a few thousand.
local AT_ONCE = 2000

local function many(command, key, values)
  for first = 1, #values, AT_ONCE do
    redis.call(command, key, unpack(values, first, math.min(first + AT_ONCE - 1, #values)))
  end
end

-- Returns the arguments from `first` on, `step` apart.
local function every(first, step)
  local values = {}
  for i = first, #ARGV, step do values[#values + 1] = ARGV[i] end
  return values
end

-- Looks feeds up: returns a function from a feed's position in the list to its band and score, and to its host if it is
-- parked. `expected` are the bands in which they probably are, looked at first: each look misses the processor's caches.
local function find(feeds, expected)
  local found_in, scores = {}, {}

  -- Looks in a band for the feeds at these positions; returns the positions of those that are not there.
  local function look(band, places)
    if #places == 0 then return places end
    local names, missing = {}, {}
    for n, i in ipairs(places) do names[n] = feeds[i] end
    local found = redis.call('ZMSCORE', bands[band], unpack(names))
    for n, i in ipairs(places) do
      if found[n] then
        found_in[i], scores[i] = band, tonumber(found[n])
      else
        missing[#missing + 1] = i
      end
    end
    return missing
  end

  local likely, missing = { {}, {}, {}, {} }, {}
  for i = 1, #feeds do
    local list = expected and likely[tonumber(expected[i])] or missing
    list[#list + 1] = i
  end
  for band = 1, #bands do
    for _, i in ipairs(look(band, likely[band])) do missing[#missing + 1] = i end
  end
  for band = 1, #bands do missing = look(band, missing) end
  local hosts = redis.call('EXISTS', parked) == 1 and redis.call('HMGET', parked, unpack(feeds)) or {}
  return function(i) return found_in[i], scores[i], hosts[i] end
end

-- Changes to the bands, applied together at the end.
local adds, removals = { {}, {}, {}, {} }, { {}, {}, {}, {} }

local function drop(feed, band)
  local list = removals[band]
  list[#list + 1] = feed
end

local function set(feed, old_band, band, score)
  local list = adds[band]
  list[#list + 1] = score
  list[#list + 1] = feed
  if old_band and old_band ~= band then drop(feed, old_band) end
end

local function write()
  for band = 1, #bands do
    if #removals[band] > 0 then many('ZREM', bands[band], removals[band]) end
    if #adds[band] > 0 then many('ZADD', bands[band], adds[band]) end
  end
end

-- Returns the end of a lease, from its score.
local function lease_end(score)
  return score >= WOKEN and score - WOKEN or score - LEASED
end

local function waiting_room(host)
  return parked .. ':' .. host
end

local function rank_score(rank, band)
  return rank + (band - 1) / 4
end

local function band_of_rank(score)
  return (score - math.floor(score)) * 4 + 1
end

-- Returns the band and time of a host's head, if it has one.
local function head(host)
  for band = 1, #bands do
    local at = redis.call('ZSCORE', heads[band], host)
    if at then return band, tonumber(at) end
  end
end

local function set_head(host, old_band, band, at)
  if old_band and old_band ~= band then redis.call('ZREM', heads[old_band], host) end
  redis.call('ZADD', heads[band], at, host)
end

-- Removes a feed from its host's parked set, and the head with the last feed.
local function leave(host, feed)
  local room = waiting_room(host)
  redis.call('HDEL', parked, feed)
  redis.call('ZREM', room, feed)
  if redis.call('EXISTS', room) == 0 then
    for band = 1, #bands do redis.call('ZREM', heads[band], host) end
  end
end
