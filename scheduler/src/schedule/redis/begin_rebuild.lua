-- Checks whether the shard is complete. KEYS[1] is its mark, KEYS[2] that of a rebuild in progress; both contain the
-- run id ARGV[1] of this server's process, so that a mark restored from a dump is not valid. ARGV[2] is a nonce.
-- Returns the rebuild's nonce, or false if nothing was lost.
local function nonce_of(key)
  local text = redis.call('GET', key)
  if text and string.sub(text, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' then return string.sub(text, #ARGV[1] + 2) end
end

if nonce_of(KEYS[1]) then return false end
local filling = nonce_of(KEYS[2])
if filling then return filling end
redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])
return ARGV[2]
