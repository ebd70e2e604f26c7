-- Removes the feeds ARGV[2..].
local feeds = every(2, 1)
local where = find(feeds)
for i, feed in ipairs(feeds) do
  local band, _, host = where(i)
  if host then leave(host, feed) end
  if band then drop(feed, band) end
end
write()
