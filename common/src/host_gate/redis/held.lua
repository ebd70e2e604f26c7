-- How many hosts of the list KEYS[3] are held now.
return redis.call('ZCOUNT', KEYS[3], '(' .. ARGV[2], '+inf')
