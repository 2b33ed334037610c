-- list_agree.lua: write the ring that the lists are filled by, if it is still the one that was read.
--
-- KEYS[1]  the agreement: a JSON document, absent before the first use
-- ARGV[1]  the document that was read; '' = none
-- ARGV[2]  the document to write
-- Returns  the document that stands now: ARGV[2] if it was written
-- Errors   WRONGTYPE if the key holds something else
local held = redis.call('GET', KEYS[1]) or ''
if held ~= ARGV[1] then return held end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
