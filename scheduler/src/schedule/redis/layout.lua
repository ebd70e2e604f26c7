-- Returns the stored number of shards, KEYS[1], and stores ours, ARGV[1], if there is none or if ARGV[2] is set.
local noted = redis.call('GET', KEYS[1])
if not noted or ARGV[2] == '1' then redis.call('SET', KEYS[1], ARGV[1]) end
return noted
