-- Releases the ticket ARGV[4] at the host KEYS[3].
local host = read_host(KEYS[3])
if take_place(host, ARGV[4]) then write_host(KEYS[3], host) end
return 0
