-- Opens the gate. ARGV[4..]: the loading's nonce, and when the caller's part of it began. Returns 1, or 0 when the gate lost
-- its memory since then, or when that part began before the requests that were out at the loss had to be over.
local nonce, begun = ARGV[4], tonumber(ARGV[5])
local open = mark(KEYS[1])
if open then return open.nonce == nonce and 1 or 0 end
local loading = mark(KEYS[2])
if not loading or loading.nonce ~= nonce or begun < loading.fourth then return 0 end
-- Something was written here by somebody who had seen a newer gate: its holds are to be loaded too.
if loading.fifth < math.max(seen, last_generation()) then return 0 end
write_open_mark(nonce, loading.lost, loading.fifth)
redis.call('DEL', KEYS[2])
return 1
