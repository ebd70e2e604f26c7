-- Returns at most ARGV[2] of the feeds that are claimed or parked; one may occur twice.
local limit = tonumber(ARGV[2])
local feeds = {}

local function take(found, step)
  for at = 1, #found, step do
    if #feeds < limit then feeds[#feeds + 1] = found[at] end
  end
end

for band = 1, #bands do
  take(redis.call('ZRANGEBYSCORE', bands[band], LEASED, '+inf', 'LIMIT', 0, limit - #feeds), 1)
end
local cursor = '0'
repeat
  local answer = redis.call('HSCAN', parked, cursor, 'COUNT', limit)
  cursor = answer[1]
  take(answer[2], 2)
until cursor == '0' or #feeds >= limit
return feeds
