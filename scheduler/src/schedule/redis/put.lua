-- Sets due times: ARGV[3..] are repeated triples of feed, due time and band. A wake that was remembered during a lease
-- makes a feed due now. The wake is then forgotten, so a repetition of the same call must do nothing: KEYS[10]
-- remembers the call. Unless ARGV[2] is 1, a feed whose lease ended and that was woken since stays where it is: the
-- caller has not heard of that.
if not redis.call('SET', KEYS[10], 1, 'NX', 'PX', REMEMBERED) then return end
local raises = ARGV[2] == '1'
local feeds = every(3, 3)
local where = find(feeds, every(5, 3))

-- Returns whether a parked feed is more urgent than what is put.
local function is_more_urgent(host, feed, band)
  local rank = redis.call('ZSCORE', waiting_room(host), feed)
  return rank and band_of_rank(tonumber(rank)) < band
end

for i, feed in ipairs(feeds) do
  local due, band = tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  local old_band, score, host = where(i)
  if score and score >= WOKEN then
    set(feed, old_band, 1, math.min(due, now))
  elseif score and score < LEASED and not raises then
    set(feed, old_band, math.min(band, old_band), math.min(due, score))
  elseif not host then
    set(feed, old_band, band, due)
  elseif raises or not is_more_urgent(host, feed, band) then
    leave(host, feed)
    set(feed, nil, band, due)
  end
end
write()
