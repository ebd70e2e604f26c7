-- Opens the gate of a fleet that never sent a request, unless it is open. ARGV[4] is a nonce. Returns its generation.
local open = mark(KEYS[1])
if open and open.fourth >= seen then return open.fourth end
local generation = next_generation()
write_open_mark(ARGV[4], 0, generation)
return generation
