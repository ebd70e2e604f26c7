-- Returns what waits from ARGV[2] on: for each band the first ARGV[3] feeds and their times. Further feeds that are due
-- in the same millisecond as the last one are included, so that a caller that continues with the next millisecond
-- misses none. If ARGV[4] is 1, in reverse: what waits back from ARGV[2], the last one first.
local from, limit, reversed = ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local command = reversed and 'ZREVRANGEBYSCORE' or 'ZRANGEBYSCORE'
local to = string.format('(%.0f', LEASED)
if reversed then
  if tonumber(from) >= LEASED then from = to end
  to = 0
end
local answer = {}
for band = 1, #bands do
  local feeds, times = {}, {}
  local function take(first, last, count)
    local found = redis.call(command, bands[band], first, last, 'WITHSCORES', 'LIMIT', 0, count)
    for at = 1, #found, 2 do
      feeds[#feeds + 1] = found[at]
      times[#times + 1] = found[at + 1]
    end
  end
  take(from, to, limit)
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
