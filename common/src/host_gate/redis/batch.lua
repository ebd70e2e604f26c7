-- Runs several starts and releases in one call, one after the other, each as a call of its own would. KEYS[3..] are their keys,
-- ARGV[4..] for each: 'acquire' or 'release', the number of its keys and of its arguments, and the arguments. Returns their answers.
local steps, answers = { acquire = acquire, release = release }, {}
local key, arg = 3, 4
while ARGV[arg] do
  local keys, args = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  answers[#answers + 1] = steps[ARGV[arg]](key, arg + 3, keys == 2)
  key, arg = key + keys, arg + 3 + args
end
return answers
