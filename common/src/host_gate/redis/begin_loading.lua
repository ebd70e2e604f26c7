-- Begins, or joins, the loading of holds into a gate that lost its memory. ARGV[3..]: a nonce, and how long after the loss the
-- gate stays closed whatever is loaded: one fetch deadline. Returns the loading's nonce, or false if the gate is open.
if opened() then return false end
local loading = mark(KEYS[2])
if not loading then
  redis.call('SET', KEYS[2], string.format('%s %s %.0f %.0f', run, ARGV[3], now, now + tonumber(ARGV[4])))
  return ARGV[3]
end
return loading.nonce
