-- Begins, or joins, the loading of holds into a gate that lost its memory. ARGV[4..]: a nonce, and how long after the loss the
-- gate stays closed whatever is loaded: one fetch deadline. Returns the loading's nonce, or '' if the gate is open, the generation
-- that the gate has or will have, the time, and before which time the gate does not open. Also notes the time: records carry expiries, so a clock that was ahead and was
-- put back has deleted some of them, and that is a loss.
local STEP_BACK = 500

local open = mark(KEYS[1])
if open and open.fourth >= seen and now >= open.fifth - STEP_BACK then
  write_open_mark(open.nonce, open.lost, open.fourth)
  return { '', open.fourth, now, now }
end
seen = math.max(seen, last_generation())
if open then redis.call('DEL', KEYS[1]) end
local loading = mark(KEYS[2])
if loading and loading.fifth >= seen and loading.lost <= now + STEP_BACK then
  return { loading.nonce, loading.fifth, now, loading.fourth }
end
local generation, opens = next_generation(), now + tonumber(ARGV[5])
redis.call('SET', KEYS[2], string.format('%s %s %.0f %.0f %.0f', run, ARGV[4], now, opens, generation))
return { ARGV[4], generation, now, opens }
