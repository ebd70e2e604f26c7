-- Starts a request without a ticket at the host KEYS[3]. ARGV[4..]: gap, burst, parallel, deadline, nonce, and '1' if
-- the caller works at this host already, so that its slot there is used, and when the caller gives up waiting. Returns
-- 0 or when to try again.
local gap, burst, parallel = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local deadline, nonce, own_place = tonumber(ARGV[7]), ARGV[8], ARGV[9] == '1'
if now > tonumber(ARGV[10]) then return now + SHORTEST_RETRY end
local lost = opened()
if not lost then return closed_until() end

local host = read_host(KEYS[3])
if place(host, nonce) then return 0 end
local earliest = math.max(held_until(host), allowed_from(host.started, gap, burst, lost))
if earliest > now then return earliest end
if not own_place then
  if #host.ids >= math.min(parallel, MOST_PLACES) then return full_until(host, gap) end
  add_place(host, nonce, deadline)
end
charge_start(host, gap)
write_host(KEYS[3], host)
return 0
