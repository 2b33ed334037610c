#!lua
-- try.lua: note with which URL a tenure begins, when the one before ended without a commit.
--
-- KEYS[1]  the site's hash (see site.lua)
-- ARGV[1]  msgpack {node, tenure, code}
-- Returns  {'TRIED', how many tenures before this one, in a row, began with this URL and ended without a commit};
--          or {'FENCED'} if another tenure holds the site: nothing changed
-- Errors   none. A repeat answers the same; after a commit of its own tenure it answers 0 and leaves no mark. Another
--          URL, or a commit, starts over.
local asked = cmsgpack.unpack(ARGV[1])
local names = {'owner', 'epoch', 'n', 'barren', 'try_code', 'try_n', 'try_epoch'}
for i, value in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
  if value and not WORDS[names[i]] then whole(value, names[i]) end
  fields[names[i]] = value or nil
end

local stored = number('epoch')
if asked.tenure < stored or (asked.tenure == stored and fields.owner ~= asked.node) then return {'FENCED'} end
-- The store has forgotten the claim, and whatever came before it; the next commit tells.
if asked.tenure > stored then return {'TRIED', 0} end
-- A call that ran late: its tenure has committed since, and so did not end at this URL.
if number('n') > 0 then return {'TRIED', 0} end

local marked = number('try_epoch')
local ended
if fields.try_code == asked.code then
  ended = marked == stored and number('try_n') - 1 or number('try_n')
else
  -- The tenure before had no reason to leave a mark, and ended without a commit with this URL before it: the first.
  ended = (number('barren') == 2 and marked ~= stored) and 1 or 0
end
put('try_code', asked.code)
put('try_n', ended + 1)
put('try_epoch', stored)
save()
return {'TRIED', ended}
