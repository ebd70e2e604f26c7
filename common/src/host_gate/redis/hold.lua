-- Nothing starts at the host KEYS[3], named ARGV[4], before ARGV[3]. KEYS[4] lists the hosts that are held, for counting.
local till, name = tonumber(ARGV[3]), ARGV[4]
local host = read_host(KEYS[3])
host.held = math.max(host.held, till)
write_host(KEYS[3], host)
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now)
if host.held > now then
  redis.call('ZADD', KEYS[4], 'GT', host.held, name)
  local last = redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')
  redis.call('PEXPIRE', KEYS[4], tonumber(last[2]) - now + SLACK)
end
return 0
