#!lua
-- commit.lua: all that one visit changes of a site, if no newer tenure holds it; and before it what its page told of
-- others: URLs found, and where its content is. Those are true whoever holds the site, so that they are kept even of a
-- visit that is fenced.
--
-- KEYS[1]  the site's hash (see site.lua; take.lua says what else is touched)
-- ARGV[1]  msgpack {node, tenure, n, due_in_ms, due_term, delay_ms, delay_term, backoff, fetched_ms_ago (-1 = nothing
--          was sent), visits, done = {{class, code}}, later = {{in_ms, class, code}}, pages = {code},
--          robots = {origin}, aside = {{reason, how many}}, fresh = {{in_ms, code}}, fresh_gap_ms, fresh_min_ms, price,
--          bytes, endless (nil = as it is), content = key of the hash that remembers it (nil = none),
--          offers = what offer.lua takes (nil = none), ahead = URLs to hand out}
-- ARGV[2...]  the packed record of each page, then the packed answer of each origin, then digest and place of `content`
-- Returns  the answer of site.lua with the word APPLIED, REPEATED (this n was applied before: nothing changed) or
--          FORGOTTEN (the store had lost commits: applied, and the larger due and delay kept), and behind it the
--          letters and numbers of take.lua; or {'FENCED', letters, numbers}
-- Errors   as offer.lua
local ROBOTS_MAX = 256  -- robots answers kept for one site; one too many costs another request later, no harm

local asked = cmsgpack.unpack(ARGV[1])
ahead = math.max(1, math.min(HEAD, tonumber(asked.ahead) or HEAD))
local letters, untold = '', {}
if type(asked.content) == 'string' then shared('HSETNX', asked.content, ARGV[#ARGV - 1], ARGV[#ARGV]) end
if type(asked.offers) == 'table' then
  letters, untold = take_all(asked.offers)
  enter(KEYS[1])
end

-- The answer, and what became of the offers.
local function tell(word)
  local said = answer(word)
  said[7], said[8] = letters, untold
  return said
end

load()
local stored = number('epoch')
local held = asked.tenure == stored and fields.owner == asked.node

-- A due never moves back. Each visit starts at or after the due it found, so its own due is later anyway; one that
-- is not was computed without knowing a pause that somebody else was told to keep: a claim, or a fenced commit.
local function lengthen_due()
  local due = now + asked.due_in_ms
  if number('due_ms') > due then return end
  put('due_ms', due)
  put('due_term', asked.due_term)
end

-- P4: an earlier tenure may only make the site wait longer. `carried_ms` is the delay it knew of; the owner may not
-- go below it until it has read robots.txt itself, which is where a longer delay comes from. One fetch that took long
-- (a node that was frozen meanwhile measures hours) is no rule of the site: it counts once, as the owner's own does.
if asked.tenure < stored or (asked.tenure == stored and not held) then
  lengthen_due()
  if asked.delay_ms > number('delay_ms') then
    put('delay_ms', asked.delay_ms)
    put('delay_term', asked.delay_term)
  end
  if asked.delay_term ~= 'duration' and asked.delay_ms > number('carried_ms') then put('carried_ms', asked.delay_ms) end
  save()
  return {'FENCED', letters, untold}
end

if held and asked.n <= number('n') then
  move_due()
  save()
  return tell('REPEATED')
end

local forgotten = not held or asked.n > number('n') + 1
if not held then
  put('prev_owner', fields.owner or '')
  put('prev_epoch', stored)
  put('owner', asked.node)
  put('epoch', asked.tenure)
end
put('n', asked.n)
-- Whatever ended the tenures before, it did not end this one (try.lua).
if fields.try_code then
  redis.call('HDEL', key, 'try_code', 'try_n', 'try_epoch')
  fields.try_code, fields.try_n, fields.try_epoch = nil, nil, nil
end

-- An owner may lower its site's delay again (a Crawl-delay withdrawn), but not what it cannot have known.
if #asked.robots > 0 then put('carried_ms', 0) end
local floor = number('carried_ms')
if forgotten then floor = math.max(floor, number('delay_ms')) end
-- P1: the delay that the record holds from here on is owed after a request, whatever the owner worked out.
if asked.fetched_ms_ago >= 0 then asked.due_in_ms = math.max(asked.due_in_ms, floor) end
lengthen_due()
put('delay_ms', math.max(asked.delay_ms, floor))
if asked.delay_ms >= floor then put('delay_term', asked.delay_term) end

put('backoff', asked.backoff)
add('pages', asked.visits)
add('bytes', asked.bytes)
if asked.price > 0 then put('price', asked.price) end
if type(asked.endless) == 'string' then put('endless', asked.endless) end
put('fresh_gap', asked.fresh_gap_ms)
put('fresh_min', asked.fresh_min_ms)
if asked.fetched_ms_ago >= 0 then
  put('last_fetch_ms', math.max(number('last_fetch_ms'), now - asked.fetched_ms_ago))
end

for _, url in ipairs(asked.done) do
  add('pending', -redis.call('LREM', stem .. 'queue:' .. url[1], 1, url[2]))
end
for _, entry in ipairs(asked.later) do
  redis.call('ZADD', stem .. 'later', text(now + entry[1]), entry[2] .. ':' .. entry[3])
end
for _, entry in ipairs(asked.fresh) do
  redis.call('ZADD', stem .. 'fresh', text(now + entry[1]), entry[2])
end
for _, entry in ipairs(asked.aside) do
  add('set_aside', entry[2])
  add('aside:' .. entry[1], entry[2])
end
for i, asked_origin in ipairs(asked.robots) do
  local key = stem .. 'robots'
  redis.call('HSET', key, asked_origin, ARGV[1 + #asked.pages + i])
  if redis.call('HLEN', key) > ROBOTS_MAX then
    for _, origin in ipairs(redis.call('HRANDFIELD', key, 2)) do
      if origin ~= asked_origin then
        redis.call('HDEL', key, origin)
        break
      end
    end
  end
end

-- A packed page is an array: etag, last_modified, content, checks, changes, observed_s, ... (records.PageRecord).
-- One that is none was never counted.
local function count(packed, sign)
  local page = unpacked(packed)
  if not page then return end
  for i = 4, 6 do
    if type(page[i]) ~= 'number' or page[i] < 0 or page[i] > 1e12 then return end
  end
  if page[1] or page[2] then add('validators', sign) end
  add('checks', sign * page[4])
  add('changes', sign * page[5])
  add('observed_ms', sign * math.floor(page[6] * 1000 + 0.5))
end

buckets = math.max(1, number('pages_b'))
size = size_of(buckets)

local function grow_pages()
  local from = stem .. 'pages:' .. (buckets - size)
  local new = buckets
  buckets = buckets + 1
  size = size_of(buckets)
  local flat = redis.call('HGETALL', from)
  local moving, names = {}, {}
  for i = 1, #flat, 2 do
    if bucket_of(page_hash(flat[i]), buckets, size) == new then
      names[#names + 1] = flat[i]
      moving[#moving + 1] = flat[i]
      moving[#moving + 1] = flat[i + 1]
    end
  end
  if #names > 0 then
    redis.call('HSET', stem .. 'pages:' .. new, unpack(moving))
    redis.call('HDEL', from, unpack(names))
  end
  put('pages_b', buckets)
end

for i, code in ipairs(asked.pages) do
  local packed = ARGV[1 + i]
  local field = page_field(code)
  local bucket = stem .. 'pages:' .. bucket_of(page_hash(field), buckets, size)
  local old = redis.call('HGET', bucket, field)
  if old then count(old, -1) end
  count(packed, 1)
  redis.call('HSET', bucket, field, packed)
  if not old then
    add('pages_n', 1)
    if number('pages_n') > buckets * PAGES_PER_BUCKET then grow_pages() end
  end
end

move_due()
save()
return tell(forgotten and 'FORGOTTEN' or 'APPLIED')
