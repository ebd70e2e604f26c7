-- Returns the mark KEYS[1] of a group.
return redis.call('GET', KEYS[1])
