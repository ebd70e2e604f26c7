-- Shows the rules ARGV[4], whose hash is ARGV[3]. KEYS[3] holds the rules, KEYS[4] their hash.
if redis.call('GET', KEYS[4]) ~= ARGV[3] then
  redis.call('SET', KEYS[3], ARGV[4])
  redis.call('SET', KEYS[4], ARGV[3])
end
return 0
