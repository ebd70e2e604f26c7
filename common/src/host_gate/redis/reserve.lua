-- Reserves a slot at each host KEYS[3..]. ARGV[4] is when the caller gives up, by its clock; ARGV[5..], five per host: gap, burst,
-- parallel, end of the ticket, ticket. Returns for each host 0 (the ticket is valid) or when to retry. A ticket that is already valid
-- is granted again.
local gives_up = tonumber(ARGV[4])
if now > gives_up then
  -- A clock that is ahead for a moment would keep the hosts from their next starts, and their feeds waiting, until it is that time.
  local late = {}
  for i = 3, #KEYS do late[i - 2] = gives_up end
  return late
end
local lost = opened()
-- A host that occurs several times is read and written once: its record grows with its slots.
local hosts, changed, answers = {}, {}, {}

local function known_host(key)
  local host = hosts[key]
  if not host then
    host = read_host(key)
    host.known = {}
    for i = 1, #host.ids do host.known[host.ids[i]] = true end
    hosts[key] = host
  end
  return host
end

local function reserve(key, gap, burst, parallel, last, ticket)
  local host = known_host(key)
  if host.known[ticket] then return 0 end
  local earliest = math.max(held_until(host), allowed_from(host.reserved, gap, burst, lost))
  if earliest > now then return earliest end
  if #host.ids >= math.min(parallel, MOST_PLACES) then
    host.full_until = host.full_until or full_until(host, gap)
    return host.full_until
  end
  host.reserved = math.max(host.reserved, now) + gap
  add_place(host, ticket, last)
  host.known[ticket] = true
  changed[key] = host
  return 0
end

for i = 3, #KEYS do
  local at = 5 + (i - 3) * 5
  if lost then
    answers[i - 2] = reserve(KEYS[i], tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]),
      tonumber(ARGV[at + 3]), ARGV[at + 4])
  else
    answers[i - 2] = closed_until()
  end
end
for key, host in pairs(changed) do write_host(key, host) end
return answers
