-- The rules KEYS[3], unless their hash KEYS[4] is ARGV[4], that of the rules which the caller knows.
local hash = redis.call('GET', KEYS[4])
if not hash or hash == ARGV[4] then return false end
return redis.call('GET', KEYS[3])
