-- Shows the rules ARGV[5], whose hash is ARGV[4]. KEYS[3] holds the rules, KEYS[4] their hash. Both are compared: any
-- process that may write to the gate could change one of them.
if redis.call('GET', KEYS[4]) ~= ARGV[4] or redis.call('GET', KEYS[3]) ~= ARGV[5] then
  redis.call('SET', KEYS[3], ARGV[5])
  redis.call('SET', KEYS[4], ARGV[4])
end
return 0
