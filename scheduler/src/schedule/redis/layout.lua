-- The number of shards that the schedule has, KEYS[1]. ARGV[1] is ours; it is noted if there is none, or if ARGV[2] says so. Returns
-- what was noted before.
local noted = redis.call('GET', KEYS[1])
if not noted or ARGV[2] == '1' then redis.call('SET', KEYS[1], ARGV[1]) end
return noted
