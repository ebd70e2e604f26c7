-- Compares the shard with the store: ARGV[2] is the slack, ARGV[3..] are repeated triples of feed, due time and band.
-- Adds missing feeds, brings forward those that are later than due time plus slack, and makes sure that a parked feed's
-- host has a head. Returns the number of corrections.
local slack = tonumber(ARGV[2])
local feeds = every(3, 3)
local where = find(feeds, every(5, 3))
local wrong = 0

local function too_late(score, due)
  if score < LEASED then return score > due + slack end
  -- A feed that was claimed late has a lease that ends late.
  return lease_end(score) > math.max(due, now) + slack
end

-- Returns whether a parked feed is correct; its host gets a head if it has none.
local function stays_parked(feed, host, band)
  if not redis.call('ZSCORE', waiting_room(host), feed) then
    redis.call('HDEL', parked, feed)
    return false
  end
  if not head(host) then
    set_head(host, nil, band, now)
    wrong = wrong + 1
  end
  return true
end

for i, feed in ipairs(feeds) do
  local due, band = tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  local old_band, score, host = where(i)
  if not (host and stays_parked(feed, host, band)) and (not old_band or too_late(score, due)) then
    set(feed, old_band, band, due)
    wrong = wrong + 1
  end
end
write()
return wrong
