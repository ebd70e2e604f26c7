-- Marks the shard as complete. KEYS and ARGV are those of begin_rebuild.lua. Returns 0 if the shard has lost its memory
-- since then.
local own = ARGV[1] .. ' ' .. ARGV[2]
if redis.call('GET', KEYS[1]) == own then return 1 end
if redis.call('GET', KEYS[2]) ~= own then return 0 end
redis.call('SET', KEYS[1], own)
redis.call('DEL', KEYS[2])
return 1
