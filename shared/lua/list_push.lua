-- list_push.lua: push URLs to their workers' lists, if the lists are still filled by this ring.
--
-- KEYS[1]     the agreement (see list_agree.lua)
-- KEYS[2...]  a list per worker
-- ARGV[1]     the agreement the owners were worked out by
-- ARGV[2...]  pairs: the number of the key, and a URL; pushed in this order
-- Returns     1, or 0 if the agreement is another: then nothing was pushed
-- Errors      WRONGTYPE before anything is pushed
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for i = 2, #KEYS do redis.call('LLEN', KEYS[i]) end
for i = 2, #ARGV, 2 do redis.call('LPUSH', KEYS[tonumber(ARGV[i])], ARGV[i + 1]) end
return 1
