-- list_aside.lua: put a whole list aside under another name, to be shared out again from there.
--
-- KEYS[1]  the agreement (see list_agree.lua)
-- KEYS[2]  the list
-- KEYS[3]  its name aside
-- ARGV[1]  the agreement that the move is for
-- Returns  1 if there is something aside now, 0 if there was nothing to put there, -1 if the agreement is another
-- Errors   none. A list that stands aside already stays there, and the other keeps its name: nothing is overwritten.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
if redis.call('EXISTS', KEYS[3]) == 1 then return 1 end
if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
redis.call('RENAME', KEYS[2], KEYS[3])
return 1
