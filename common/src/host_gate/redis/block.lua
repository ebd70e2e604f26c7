-- Nothing starts at the host KEYS[3], named ARGV[5], before ARGV[4] by an operator's word; zero takes it back. A server's hold
-- stays as it is. KEYS[4] lists the hosts that are held, for counting. Returns the gate's generation.
local host = read_host(KEYS[3])
host.blocked = tonumber(ARGV[4])
write_host(KEYS[3], host)
redis.call('ZADD', KEYS[4], held_until(host), ARGV[5])
trim_held(KEYS[4])
return written_generation()
