-- Opens the gate of a fleet that never asked anybody, unless it is open. ARGV[3] is a nonce.
if not opened() then redis.call('SET', KEYS[1], string.format('%s %s 0', run, ARGV[3])) end
return 0
