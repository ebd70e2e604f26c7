-- Nothing starts at the hosts KEYS[4..] for a time of each. KEYS[3] lists the hosts that are held, for counting. ARGV[4] is the caller's
-- time, ARGV[5..], two a host, the end of the hold by the caller's clock, and the host's name. A hold lasts for as long as was requested
-- from now on, because the clocks may differ; if they differ by more than they may, because this server's was set a moment ago, the
-- caller's counts. Returns the gate's generation.
local OFFSET = 1000

for i = 4, #KEYS do
  local at = 5 + (i - 4) * 2
  local host = read_host(KEYS[i])
  local till = tonumber(ARGV[at])
  local by_server = now + till - tonumber(ARGV[4])
  host.held = math.max(host.held, math.min(math.max(by_server, till - OFFSET), till + OFFSET))
  write_host(KEYS[i], host)
  redis.call('ZADD', KEYS[3], held_until(host), ARGV[at + 1])
end
trim_held(KEYS[3])
return written_generation()
