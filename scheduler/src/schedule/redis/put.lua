-- Sets due times: ARGV[2..] are repeated triples of feed, due time and band. A wake that was remembered during a lease
-- makes a feed due now. The wake is then forgotten, so a repetition of the same call must do nothing: KEYS[10]
-- remembers the call.
if not redis.call('SET', KEYS[10], 1, 'NX', 'PX', REMEMBERED) then return 0 end
local feeds = every(2, 3)
local where = find(feeds)
for i, feed in ipairs(feeds) do
  local due, band = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
  local old_band, score, host = where(i)
  if host then leave(host, feed) end
  if score and score >= WOKEN then
    set(feed, old_band, 1, math.min(due, now))
  else
    set(feed, old_band, band, due)
  end
end
write()
return 0
