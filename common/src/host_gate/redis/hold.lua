-- Nothing starts at the hosts KEYS[4..] for a time of each. KEYS[3] lists the hosts that are held, for counting. ARGV[4..],
-- two a host: for how long from now on, because the caller's clock is not this server's, and the host's name.
for i = 4, #KEYS do
  local at = 4 + (i - 4) * 2
  local host = read_host(KEYS[i])
  host.held = math.max(host.held, now + tonumber(ARGV[at]))
  write_host(KEYS[i], host)
  redis.call('ZADD', KEYS[3], held_until(host), ARGV[at + 1])
end
trim_held(KEYS[3])
return 0
