-- Notes which configuration a scheduler has: ARGV[1] is its hash, KEYS[1] a set of hashes by the time at which each was noted last.
-- Returns those that were noted within the last ARGV[2] milliseconds.
local time = redis.call('TIME')
local now, kept = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), tonumber(ARGV[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - kept)
redis.call('PEXPIRE', KEYS[1], kept)
return redis.call('ZRANGE', KEYS[1], 0, -1)
