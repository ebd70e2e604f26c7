-- Claims what is due: at most ARGV[3] feeds for ARGV[2] milliseconds, with ARGV[4] = 1 of the most urgent band alone. Each band
-- has a guaranteed share, and the others take what is left, most urgent first; within a band the oldest come first. Returns three
-- things: lists of feeds that were waiting, lists of feeds whose lease had expired, and feed and host of each that was parked.
-- KEYS[10] keeps the result for a short time, so that a repetition of the same call returns it again. ARGV[5] is when the caller gives
-- up, by its clock: what is claimed later helps nobody, and a clock that is ahead for a moment would claim far too early and for far too long.
--
-- A lease begins now, by this server's clock: the call may have waited for the election of a master.
local till, limit = now + tonumber(ARGV[2]), tonumber(ARGV[3])

local before = redis.call('GET', KEYS[10])
if before then return cmsgpack.unpack(before) end
if now > tonumber(ARGV[5]) then return { {}, {}, {} } end

-- The sources of a band's due entries: key, lowest and highest score, and the offset between score and time.
local function sources(band)
  return {
    { bands[band], 0, now, 0 },
    { bands[band], LEASED, LEASED + now, LEASED },
    { bands[band], WOKEN, WOKEN + now, WOKEN },
    { heads[band], 0, now, 0 },
  }
end

-- The number of due entries of a band, by source.
local function due(band)
  local counts = { total = 0 }
  for i, source in ipairs(sources(band)) do
    counts[i] = redis.call('ZCOUNT', source[1], source[2], source[3])
    counts.total = counts.total + counts[i]
  end
  return counts
end

local GOLDEN_RATIO = 0.6180339887498949

-- The number of entries to take from each band.
local function allot(dues)
  local rooms, left = { 0 }, limit
  for band = 2, #bands do
    -- A fifth, rounded up or down depending on the time.
    local share = math.floor(limit / 5 + (now * GOLDEN_RATIO + (band - 1) / 5) % 1)
    rooms[band] = math.min(share, dues[band].total, left)
    left = left - rooms[band]
  end
  for band = 1, #bands do
    local more = math.min(left, dues[band].total - rooms[band])
    rooms[band] = rooms[band] + more
    left = left - more
  end
  return rooms
end

local waited, expired, from_parked = {}, {}, {}
-- As text, so that it is not formatted again for each feed.
local lease = string.format('%.0f', LEASED + till)

-- Claims the top parked feed of a host whose head is due, and sets the head again if others stay.
local function claim_parked(host, band)
  local room = waiting_room(host)
  local top = redis.call('ZPOPMIN', room)
  local follower = redis.call('ZRANGE', room, 0, 0, 'WITHSCORES')
  if follower[1] then
    set_head(host, band, band_of_rank(tonumber(follower[2])), till)
  else
    redis.call('ZREM', heads[band], host)
  end
  if not top[1] then return end
  redis.call('HDEL', parked, top[1])
  set(top[1], nil, band_of_rank(tonumber(top[2])), lease)
  from_parked[#from_parked + 1] = { top[1], host }
end

-- Claims entries of one source of a band, in their order.
local function claim(band, source, entries)
  if source == 4 then
    for _, host in ipairs(entries) do claim_parked(host, band) end
    return
  end
  local list = adds[band]
  for i = 1, #entries do
    list[#list + 1] = lease
    list[#list + 1] = entries[i]
  end
  local answered = source == 1 and waited or expired
  answered[#answered + 1] = entries
end

-- Returns the oldest `room` entries of a band, by source.
local function oldest(from, counts, room)
  local all = {}
  for i, source in ipairs(from) do
    local found = redis.call('ZRANGEBYSCORE', source[1], source[2], source[3], 'WITHSCORES', 'LIMIT', 0,
      math.min(room, counts[i]))
    for at = 1, #found, 2 do all[#all + 1] = { tonumber(found[at + 1]) - source[4], found[at], i } end
  end
  table.sort(all, function(a, b) return a[1] < b[1] end)
  local entries = { {}, {}, {}, {} }
  for at = 1, math.min(room, #all) do
    local list = entries[all[at][3]]
    list[#list + 1] = all[at][2]
  end
  return entries
end

local function claim_band(band, counts, room)
  local from = sources(band)
  if counts.total > room and counts.total > counts[1] then
    for i, entries in ipairs(oldest(from, counts, room)) do claim(band, i, entries) end
    return
  end
  for i, source in ipairs(from) do
    local count = math.min(room, counts[i])
    if count > 0 then
      claim(band, i, redis.call('ZRANGEBYSCORE', source[1], source[2], source[3], 'LIMIT', 0, count))
    end
  end
end

local dues = {}
for band = 1, #bands do
  dues[band] = (band == 1 or ARGV[4] ~= '1') and due(band) or { total = 0 }
end
local rooms = allot(dues)
for band = 1, #bands do
  if rooms[band] > 0 then claim_band(band, dues[band], rooms[band]) end
end
write()
local answer = { waited, expired, from_parked }
if #waited + #expired + #from_parked > 0 then redis.call('SET', KEYS[10], cmsgpack.pack(answer), 'PX', REMEMBERED) end
return answer
