#!lua
-- claim.lua: begin a tenure, and hand over all that is known of the site.
--
-- KEYS[1]  the site's hash (see site.lua)
-- ARGV[1]  msgpack {node, epoch, delay_ms = the cluster's minimum}
-- Returns  {'STALE', stored epoch} if a newer tenure holds the site, else the answer of site.lua with the word 'CLAIMED'
-- Errors   none. A repeat changes nothing, and names the same owner before.
local asked = cmsgpack.unpack(ARGV[1])
load()
local stored = number('epoch')

-- One epoch gives a site to one node: a second one that claims it computes other owners, and is kept out.
if asked.epoch < stored or (asked.epoch == stored and fields.owner ~= asked.node) then
  return {'STALE', string.format('%.0f', stored)}
end

if asked.epoch > stored then
  -- Did the last tenure end without a commit although it outlived its due, so that it may have asked for a page? Then
  -- 1 if it too knew such a tenure before it, and so left a mark if it began with a page (try.lua); else 2. 0: no.
  -- A site that moves on while it waits ends no tenure of this kind.
  local barren = stored > 0 and number('n') == 0 and now >= number('due_ms')
  put('barren', barren and (number('barren') == 0 and 2 or 1) or 0)
  put('prev_owner', fields.owner or '')
  put('prev_epoch', stored)
  put('owner', asked.node)
  put('epoch', asked.epoch)
  put('n', 0)
  if number('delay_ms') < asked.delay_ms then
    put('delay_ms', asked.delay_ms)
    put('delay_term', 'minimum')
  end
  -- P1: the last owner's last contact may lie just before this moment, committed or not: a full delay from here.
  local due = now + number('delay_ms')
  if number('due_ms') < due then
    put('due_ms', due)
    put('due_term', 'claim')
  end
end
move_due()
save()
return answer('CLAIMED')
