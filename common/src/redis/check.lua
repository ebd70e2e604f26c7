-- The server's time, what it does when its memory is full, and the value of KEYS[1].
-- Returns seconds, microseconds, policy, value.
local time = redis.call('TIME')
local memory = redis.call('INFO', 'memory')
local limited = string.match(memory, 'maxmemory:(%d+)') ~= '0'
local policy = limited and string.match(memory, 'maxmemory_policy:([%w-]+)') or 'noeviction'
return { tonumber(time[1]), tonumber(time[2]), policy, redis.call('GET', KEYS[1]) }
