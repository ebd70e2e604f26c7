-- Returns what waits from ARGV[2] on: for each band the first ARGV[3] feeds and their times. Further feeds that are due
-- in the same millisecond as the last one are included, so that a caller that continues with the next millisecond
-- misses none.
local from, limit = ARGV[2], tonumber(ARGV[3])
local below = string.format('(%.0f', LEASED)
local answer = {}
for band = 1, #bands do
  local feeds, times = {}, {}
  local function take(low, high, count)
    local found = redis.call('ZRANGEBYSCORE', bands[band], low, high, 'WITHSCORES', 'LIMIT', 0, count)
    for at = 1, #found, 2 do
      feeds[#feeds + 1] = found[at]
      times[#times + 1] = found[at + 1]
    end
  end
  take(from, below, limit)
  local last = times[limit]
  if last then
    while times[#times] == last do
      feeds[#feeds], times[#times] = nil, nil
    end
    take(last, last, -1)
  end
  answer[band] = { feeds, times }
end
return answer
