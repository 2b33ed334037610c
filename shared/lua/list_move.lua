-- list_move.lua: move the oldest URLs of a list that stands aside to their new lists.
--
-- KEYS[1]     the agreement (see list_agree.lua)
-- KEYS[2]     the list that stands aside
-- KEYS[3...]  a list per worker
-- ARGV[1]     the agreement that the move is for
-- ARGV[2...]  pairs: the number of the key, and a URL, oldest first as they were read from the right end
-- Returns     how many were moved, or -1 if the agreement is another. A URL that is no longer at the right end was
--             moved by somebody else: it and what follows it stay.
-- Errors      WRONGTYPE before anything is moved
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
for i = 3, #KEYS do redis.call('LLEN', KEYS[i]) end
local moved = 0
for i = 2, #ARGV, 2 do
  if redis.call('LINDEX', KEYS[2], -1) ~= ARGV[i + 1] then break end
  redis.call('RPOP', KEYS[2])
  redis.call('LPUSH', KEYS[tonumber(ARGV[i])], ARGV[i + 1])
  moved = moved + 1
end
return moved
