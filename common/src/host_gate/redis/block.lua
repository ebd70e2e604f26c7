-- Nothing starts at the host KEYS[3], named ARGV[4], before ARGV[3] by an operator's word; zero takes it back. A server's hold
-- stays as it is. KEYS[4] lists the hosts that are held, for counting.
local host = read_host(KEYS[3])
host.blocked = tonumber(ARGV[3])
write_host(KEYS[3], host)
list_held(KEYS[4], ARGV[4], host)
return 0
