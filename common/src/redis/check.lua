-- The server's time, what it does when its memory is full, the value of KEYS[1], and whether it takes a write: KEYS[2].
-- Returns seconds, microseconds, policy, why it takes none ('' if it does), value; an error from a replica, and from a master that its
-- replicas have left.
local time = redis.call('TIME')
local memory = redis.call('INFO', 'memory')
local limited = string.match(memory, 'maxmemory:(%d+)') ~= '0'
local policy = limited and string.match(memory, 'maxmemory_policy:([%w-]+)') or 'noeviction'
local written = redis.pcall('SET', KEYS[2], time[1], 'EX', 60)
local refusal = written.err or ''
-- As an error, which ends the connection: it leads to a replica now, or to a master in whose place another one may be elected, and a
-- new one may lead to the primary.
if string.find(refusal, '^READONLY') or string.find(refusal, '^NOREPLICAS') then return redis.error_reply(refusal) end
return { tonumber(time[1]), tonumber(time[2]), policy, refusal, redis.call('GET', KEYS[1]) }
