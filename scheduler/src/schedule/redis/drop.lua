-- Deletes a shard that was left by a fleet with another number of shards.
local parked = KEYS[9]
for _, host in ipairs(redis.call('HVALS', parked)) do redis.call('UNLINK', parked .. ':' .. host) end
return redis.call('UNLINK', unpack(KEYS))
