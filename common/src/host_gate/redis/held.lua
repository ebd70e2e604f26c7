-- How many hosts of the list KEYS[3] are held now.
return redis.call('ZCOUNT', KEYS[3], string.format('(%.0f', now), '+inf')
