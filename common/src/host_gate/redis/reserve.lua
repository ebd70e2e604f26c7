-- Reserves a place at each host KEYS[3..]. ARGV[3..], five a host: gap, burst, parallel, end of the ticket, ticket.
-- Returns for each host 0 (the ticket holds) or when to ask again. A ticket that holds already is given again.
local lost = opened()
local answers = {}

local function reserve(key, gap, burst, parallel, last, ticket)
  local host = read_host(key)
  if place(host, ticket) then return 0 end
  local earliest = math.max(held_until(host), allowed_from(host.reserved, gap, burst, lost))
  if earliest > now then return earliest end
  if #host.ids >= parallel then return full_until(host, gap) end
  host.reserved = math.max(host.reserved, now) + gap
  add_place(host, ticket, last)
  write_host(key, host)
  return 0
end

for i = 3, #KEYS do
  local at = 3 + (i - 3) * 5
  if lost then
    answers[i - 2] = reserve(KEYS[i], tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]),
      tonumber(ARGV[at + 3]), ARGV[at + 4])
  else
    answers[i - 2] = closed_until()
  end
end
return answers
