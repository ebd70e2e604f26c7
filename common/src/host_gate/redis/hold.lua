-- Nothing starts at the host KEYS[3], named ARGV[4], before ARGV[3]. KEYS[4] lists the hosts that are held, for counting.
local till, name = tonumber(ARGV[3]), ARGV[4]
local host = read_host(KEYS[3])
host.held = math.max(host.held, till)
write_host(KEYS[3], host)
list_held(KEYS[4], name, host)
return 0
