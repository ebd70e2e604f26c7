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
local loading = mark(KEYS[2])
if not loading or loading.fifth < seen or loading.lost > now + STEP_BACK then
  loading = { nonce = ARGV[4], fourth = now + tonumber(ARGV[5]), fifth = next_generation() }
  redis.call('SET', KEYS[2], string.format('%s %s %.0f %.0f %.0f', run, loading.nonce, now, loading.fourth, loading.fifth))
end
-- Workers learn of this generation before the gate is open: if it fails back to a server that was the gate before, and on to this one
-- again, they must use neither until it is loaded.
close(loading.fifth)
return { loading.nonce, loading.fifth, now, loading.fourth }
