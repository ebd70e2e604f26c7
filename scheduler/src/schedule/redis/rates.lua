-- Notes what a scheduler did per second: ARGV[1] is its name, ARGV[2] its rates as text, KEYS[1] a set of such notes, `NAME RATES`, by the
-- time at which each was made. Returns the last rates of each scheduler that noted some within the last ARGV[3] milliseconds.
local time = redis.call('TIME')
local now, kept = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), tonumber(ARGV[3])
redis.call('ZADD', KEYS[1], now, ARGV[1] .. ' ' .. ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - kept)
redis.call('PEXPIRE', KEYS[1], kept)
local last, rates = {}, {}
for _, note in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local name, text = string.match(note, '^(%S+) (.*)$')
  if name then last[name] = text end
end
for _, text in pairs(last) do rates[#rates + 1] = text end
return rates
