-- Returns the contents of the shard: feeds, due, parked, leased; the time of the next claim; the oldest due time that
-- has passed, by band. -1 means no time.
local waiting_parked = redis.call('HLEN', parked)
local feeds, due, leased, soonest = waiting_parked, waiting_parked, 0, -1
local oldest = { -1, -1, -1, -1 }

-- Returns the lowest score of a set from `low` to `high`, or -1.
local function lowest(key, low, high)
  local found = redis.call('ZRANGEBYSCORE', key, low, high, 'WITHSCORES', 'LIMIT', 0, 1)
  return found[2] and tonumber(found[2]) or -1
end

local function consider(at)
  if at >= 0 and (soonest < 0 or at < soonest) then soonest = at end
end

for band = 1, #bands do
  feeds = feeds + redis.call('ZCARD', bands[band])
  due = due + redis.call('ZCOUNT', bands[band], 0, now)
  leased = leased + redis.call('ZCOUNT', bands[band], LEASED, '+inf')
  local first = lowest(bands[band], 0, LEASED - 1)
  if first <= now then oldest[band] = first end
  consider(first)
  consider(lowest(heads[band], 0, '+inf'))
  for _, state in ipairs({ { LEASED, WOKEN - 1 }, { WOKEN, '+inf' } }) do
    local score = lowest(bands[band], state[1], state[2])
    if score >= 0 then consider(lease_end(score)) end
  end
end
return { feeds, due, waiting_parked, leased, soonest, unpack(oldest) }
