-- Brings heads forward: ARGV[2..] are repeated pairs of host and time.
if redis.call('EXISTS', unpack(heads)) == 0 then return end
local hosts = every(2, 2)
for band = 1, #bands do
  local times = redis.call('ZMSCORE', heads[band], unpack(hosts))
  for i, host in ipairs(hosts) do
    local at = tonumber(ARGV[2 * i + 1])
    if times[i] and at < tonumber(times[i]) then redis.call('ZADD', heads[band], at, host) end
  end
end
