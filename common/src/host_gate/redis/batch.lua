-- Runs several starts and releases in one call, one after the other, each as a call of its own would. KEYS[3..] are their keys,
-- ARGV[4..] for each: 'acquire' or 'release', the number of its keys and of its arguments, and the arguments. Returns their answers.
local steps, answers = { acquire = acquire, release = release }, {}
local key, arg = 3, 4
while ARGV[arg] do
  local step, keys, args = steps[ARGV[arg]], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local own_keys, own_args = {}, {}
  for i = 0, keys - 1 do own_keys[3 + i] = KEYS[key + i] end
  for i = 0, args - 1 do own_args[4 + i] = ARGV[arg + 3 + i] end
  answers[#answers + 1] = step(own_keys, own_args)
  key, arg = key + keys, arg + 3 + args
end
return answers
