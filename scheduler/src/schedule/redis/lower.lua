-- Brings feeds forward: ARGV[2..] are repeated triples of feed, due time and band.
local feeds = every(2, 3)
local where = find(feeds, every(4, 3))

-- A parked feed goes to the front of its host, whose head takes the more urgent band and is due no later than the feed.
local function to_front(feed, host, band, due)
  local room = waiting_room(host)
  local rank = redis.call('ZSCORE', room, feed)
  band = math.min(band, rank and band_of_rank(tonumber(rank)) or band)
  redis.call('ZADD', room, rank_score(FRONT, band), feed)
  local head_band, at = head(host)
  set_head(host, head_band, math.min(band, head_band or band), math.min(due, at or now))
end

for i, feed in ipairs(feeds) do
  local due, band = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
  local old_band, score, host = where(i)
  if host then
    to_front(feed, host, band, due)
  elseif not old_band then
    set(feed, nil, band, due)
  elseif score < LEASED then
    set(feed, old_band, math.min(band, old_band), math.min(due, score))
  elseif lease_end(score) > now then
    set(feed, old_band, old_band, WOKEN + lease_end(score))
  else
    set(feed, old_band, math.min(band, old_band), math.min(due, lease_end(score)))
  end
end
write()
