-- Shared by the gate's scripts: the records of the gate, of a host and of a feed.
--
-- All keys have the same hash tag, so that a script may use several. KEYS[1] is the mark of an open gate, KEYS[2] that of a
-- gate whose holds are being loaded; ARGV[1] is the run of this server's process, ARGV[2] a time for tests, ARGV[3] the newest
-- generation of the gate that the caller has seen. All times are milliseconds since 1970 by this server's clock: callers'
-- clocks differ, and a gap must not.

local run, now, seen = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- How much longer than needed a key is kept.
local SLACK = 2000
-- The maximum number of slots of a host, whatever its rule says: each script reads all of them.
local MOST_PLACES = 1000
-- How long callers wait before they retry at a closed gate.
local UNOPENED_RETRY = 1000
-- The minimum time before callers retry at a busy host; otherwise its gap.
local SHORTEST_RETRY = 10

-- The words of a mark of this run: RUN NONCE LOST, followed by GENERATION CLOCK for an open gate, or by OPENS GENERATION for a
-- loading one. A mark from an old dump is of another run.
local function mark(key)
  local text = redis.call('GET', key)
  if not text then return nil end
  local words = {}
  for word in string.gmatch(text, '%S+') do words[#words + 1] = word end
  if words[1] ~= run then return nil end
  return { nonce = words[2], lost = tonumber(words[3]), fourth = tonumber(words[4]) or 0, fifth = tonumber(words[5]) or 0 }
end

-- The generation in a mark KEYS[1] of any run, 0 if there is none: that of a gate that was open once, or that was being loaded.
local function last_generation()
  local text = redis.call('GET', KEYS[1])
  return tonumber(text and string.match(text, '^%S+ %S+ %S+ (%S+)')) or 0
end

-- The generation of a gate that is about to open. It contains the time, so that it increases even if neither this server, which
-- may have lost its memory, nor the caller, which may have been restarted, knows the last one.
local function next_generation()
  return math.max(math.max(seen, last_generation()) + 1, now)
end

-- Replaces the mark of an open gate by one of no run that carries a generation, which every process that checks the gate learns.
local function close(generation)
  redis.call('SET', KEYS[1], string.format('- - 0 %.0f 0', generation))
end

-- When the gate last lost its memory and its generation, or nil while it is closed. A mark older than one that the caller has seen belongs to a
-- server that was unavailable while another one was the gate: it lacks that server's writes. Then the gate is closed in that newer
-- generation. Otherwise a process that has just started, or that did not see the other server, would use the gate, and no scheduler
-- would load it.
local function look_whether_open()
  local open = mark(KEYS[1])
  if not open then return nil end
  if open.fourth < seen then
    close(seen)
    return nil
  end
  return open.lost, open.fourth
end

-- The same for all steps of one call: no step opens the gate.
local has_looked, lost_at, generation
local function opened()
  if not has_looked then
    has_looked = true
    lost_at, generation = look_whether_open()
  end
  return lost_at
end

-- The generation that a caller must have seen that has written something here. A gate that is closed, and that nobody has begun to load,
-- gets a new one: if it fails back to a server that was the gate before, that server lacks what was written.
local function written_generation()
  if opened() or generation then return generation end
  local loading = mark(KEYS[2])
  if loading and loading.fifth >= math.max(seen, last_generation()) then
    generation = loading.fifth
  else
    generation = next_generation()
    close(generation)
  end
  return generation
end

local function write_open_mark(nonce, lost, generation)
  redis.call('SET', KEYS[1], string.format('%s %s %.0f %.0f %.0f', run, nonce, lost, generation, now))
end

-- When to retry at a closed gate.
local function closed_until()
  local loading = mark(KEYS[2])
  return math.max(now + UNOPENED_RETRY, loading and loading.fourth or 0)
end

-- An operator's block is stored among the slots, under a name that no slot has: a script of the previous version treats it as a
-- slot, and refuses.
local BLOCK = 'blocked.'

-- A host: `reserved` and `started` are theoretical arrival times (generic cell rate algorithm) of reservations and of real
-- starts; `held` and `blocked` are the ends of a server's hold and of an operator's block; `ends` and `ids` are its slots in use,
-- both tickets and requests. Packed: three doubles, then a double and eight bytes per slot. Expired slots are not
-- read.
local function read_host(key)
  local host = { reserved = 0, started = 0, held = 0, blocked = 0, ends = {}, ids = {} }
  local packed = redis.call('GET', key)
  if not packed then return host end
  host.reserved, host.started, host.held = struct.unpack('>ddd', packed)
  local at = 25
  while at < #packed do
    local last, id
    last, id, at = struct.unpack('>dc8', packed, at)
    if id == BLOCK then
      host.blocked = last
    elseif last > now then
      host.ends[#host.ends + 1] = last
      host.ids[#host.ids + 1] = id
    end
  end
  return host
end

-- Stores a host for as long as its record differs from that of an unknown host.
local function write_host(key, host)
  local latest = math.max(host.reserved, host.started, host.held, host.blocked)
  local packed = { struct.pack('>ddd', host.reserved, host.started, host.held) }
  if host.blocked > now then packed[2] = struct.pack('>dc8', host.blocked, BLOCK) end
  for i = 1, #host.ids do
    latest = math.max(latest, host.ends[i])
    packed[#packed + 1] = struct.pack('>dc8', host.ends[i], host.ids[i])
  end
  if latest > now then
    redis.call('SET', key, table.concat(packed), 'PX', latest - now + SLACK)
  else
    redis.call('DEL', key)
  end
end

-- Until when nothing may start, because of a hold or a block.
local function held_until(host)
  return math.max(host.held, host.blocked)
end

-- Drops from the list of held hosts those whose holds have ended.
local function trim_held(list)
  redis.call('ZREMRANGEBYSCORE', list, '-inf', now)
  local last = redis.call('ZRANGE', list, -1, -1, 'WITHSCORES')
  if last[2] then redis.call('PEXPIRE', list, tonumber(last[2]) - now + SLACK) end
end

local function place(host, id)
  for i = 1, #host.ids do
    if host.ids[i] == id then return i end
  end
end

local function add_place(host, id, last)
  host.ids[#host.ids + 1] = id
  host.ends[#host.ends + 1] = last
end

-- Releases a slot; returns true if there was one.
local function take_place(host, id)
  local i = place(host, id)
  if i then
    table.remove(host.ids, i)
    table.remove(host.ends, i)
  end
  return i ~= nil
end

-- When the limits allow the next start, after `arrival`; never within a gap after the gate lost its memory.
local function allowed_from(arrival, gap, burst, lost)
  return math.max(arrival - gap * (burst - 1), lost + gap)
end

-- Charges a start, from which the next reservation counts too: a job may wait in the queue between the two.
local function charge_start(host, gap)
  host.started = math.max(host.started, now) + gap
  host.reserved = math.max(host.reserved, host.started)
end

-- When to try a host again whose slots are all taken. Deadlines are the worst case: most requests have ended long
-- before.
local function full_until(host, gap)
  local first = now + math.max(gap, SHORTEST_RETRY)
  for i = 1, #host.ends do
    if host.ends[i] < first then first = host.ends[i] end
  end
  return first
end
