#!lua flags=no-writes
-- look.lua: the site's record as it stands, for those who do not own it.
--
-- KEYS[1]  the site's hash (see site.lua)
-- Returns  the answer of site.lua with the word LOOKED, or {'UNKNOWN'} for a site that was never offered or claimed
-- Errors   none. Writes nothing.
load()
if not next(fields) then return {'UNKNOWN'} end
return answer('LOOKED')
