-- site.lua: what the scripts of a site share; its text is put between their first line and their second. That first
-- line (#!lua) has the store refuse keys of two slots, and a script that writes before it begins when memory is out.
--
-- KEYS[1]  cr:<c>:{S}:site   hash of the site. Its other keys differ in the last word only: later, robots,
--                            fresh,
--                            queue:<0-9>, seen:<bucket>, pages:<bucket>. All of them lie in the slot of {S}. On a
--                            Redis Cluster nothing else is ever touched; on one server take.lua says what is.
-- Numbers in Lua are doubles: exact to 2^53, and turned to text with 14 digits unless formatted. Hence text(),
-- and hence digests of 63 bits stay strings.

local SEEN_PER_BUCKET = 200   -- a bucket about to be split holds twice the mean: under the 512 of a compact intset
local PAGES_PER_BUCKET = 44   -- the same against 128 fields of a compact hash
local HASH_RANGE = 4194304    -- 2^22: more buckets than any site has, and products below stay exact
local HEAD = 8                -- URLs handed out at once at most: the owner reads ahead, nothing is taken off the queue
local DUE_AT_ONCE = 100       -- entries of `later` moved by one call, so that its time is bounded
local FRESH_LOOK = 64         -- pages looked at for one recrawl slot: the first are often those that were just visited
local SLOTS_LATE = 10         -- recrawl slots that may be made up for: a site that was away does not come back in a burst

local key, stem, fields, changed

-- Everything below speaks of this site.
local function enter(name) key, stem, fields, changed = name, string.sub(name, 1, -5), {}, {} end

enter(KEYS[1])

-- A slot of a Redis Cluster that is moved key by key: the store refuses a script where it meets the first key that is
-- not here, which may be after a write. This key is nowhere, so there it refuses before any.
redis.call('EXISTS', stem .. 'nowhere')

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function text(number) return string.format('%.0f', number) end

local WORDS = {owner = true, prev_owner = true, due_term = true, delay_term = true, try_code = true, endless = true}

-- Whatever else wrote here: a value that is no number of ours ends the script before it has changed anything. 16 digits,
-- since a longer one may be infinite, and with it a loop over buckets.
local function whole(value, name)
  if #value > 16 or not string.find(value, '^-?%d+$') then error('DAMAGED ' .. name) end
  return tonumber(value)
end

local function load()
  local flat = redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    if not WORDS[flat[i]] then whole(flat[i + 1], flat[i]) end
    fields[flat[i]] = flat[i + 1]
  end
end

local function number(name) return tonumber(fields[name] or '0') end

local function put(name, value)
  if type(value) == 'number' then value = text(value) end
  fields[name] = value
  changed[name] = value
end

local function add(name, amount)
  if amount ~= 0 then put(name, number(name) + amount) end
end

local function save()
  local flat = {}
  for name, value in pairs(changed) do
    flat[#flat + 1] = name
    flat[#flat + 1] = value
  end
  if #flat > 0 then redis.call('HSET', key, unpack(flat)) end
end

-- Linear hashing (Litwin 1980): with b buckets, size the largest power of two up to b, a hash lies in bucket
-- hash mod 2*size, or size below it where that bucket does not exist yet. Growing by one splits one bucket.

local function size_of(buckets)
  local size = 1
  while size * 2 <= buckets do size = size * 2 end
  return size
end

local function bucket_of(hash, buckets, size)
  local bucket = hash % (size * 2)
  if bucket >= buckets then bucket = bucket - size end
  return bucket
end

-- A page is kept under 64 bits of its code's SHA-1, in the bucket that the first of them name; how the URL was found,
-- which may stand behind a space, is no part of it.
local function page_field(code) return string.sub(redis.sha1hex(string.match(code, '^[^ ]*')), 1, 16) end

local function page_hash(field) return tonumber(string.sub(field, 1, 7), 16) % HASH_RANGE end

-- A function from code to packed page record ('' = none).
local function pages_now()
  if number('pages_n') == 0 then return function() return '' end end
  local buckets = math.max(1, number('pages_b'))
  local size = size_of(buckets)
  return function(code)
    local field = page_field(code)
    return redis.call('HGET', stem .. 'pages:' .. bucket_of(page_hash(field), buckets, size), field) or ''
  end
end

-- A packed page's fields (records.PageRecord); nil for bytes that are none.
local function unpacked(packed)
  local reads, page = pcall(cmsgpack.unpack, packed)
  if reads and type(page) == 'table' then return page end
end

-- At most one page for each recrawl slot that has come: the one that is wanted first, unless it was visited too lately.
-- It goes to the front of its queue. While other URLs wait, recrawls have at most every second visit, however late the
-- visits are: a node that has too much to do goes on discovering.
local function fill_slot()
  local gap = number('fresh_gap')
  if gap <= 0 or now < number('fresh_at') then return end
  if number('pending') > 0 and number('pages') < number('fresh_turn') then return end
  local codes = redis.call('ZRANGE', stem .. 'fresh', 0, FRESH_LOOK - 1)
  if #codes == 0 then return end
  local page_of = pages_now()
  local free
  for _, code in ipairs(codes) do
    local page = unpacked(page_of(code)) or {}
    local last, class = tonumber(page[7]) or 0, tonumber(page[10]) or 5
    local open = last + number('fresh_min')
    if open <= now then
      redis.call('ZREM', stem .. 'fresh', code)
      redis.call('LPUSH', stem .. 'queue:' .. math.max(0, math.min(9, math.floor(class))), code)
      local at = fields.fresh_at and math.max(number('fresh_at'), now - SLOTS_LATE * gap) or now
      put('fresh_at', at + gap)
      put('fresh_turn', number('pages') + 2)
      add('pending', 1)
      return
    end
    free = math.min(free or open, open)
  end
  put('fresh_at', free)
end

-- Moves what fell due into its queues.
local function move_due()
  fill_slot()
  if redis.call('ZCARD', stem .. 'later') == 0 then return end
  local due = redis.call('ZRANGEBYSCORE', stem .. 'later', '-inf', text(now), 'LIMIT', 0, DUE_AT_ONCE)
  if #due == 0 then return end
  for _, member in ipairs(due) do
    redis.call('RPUSH', stem .. 'queue:' .. string.sub(member, 1, 1), string.sub(member, 3))
  end
  redis.call('ZREM', stem .. 'later', unpack(due))
  add('pending', #due)
end

local ahead = HEAD  -- a commit may ask for fewer

-- Class, compact URL, packed page record ('' = none) of the next URLs, in a row.
local function head()
  local out, left = {}, math.min(ahead, number('pending'))
  local page_of = pages_now()
  for class = 9, 0, -1 do
    if left <= 0 then break end
    local codes = redis.call('LRANGE', stem .. 'queue:' .. class, 0, left - 1)
    for _, code in ipairs(codes) do
      out[#out + 1] = class
      out[#out + 1] = code
      out[#out + 1] = page_of(code)
    end
    left = left - #codes
  end
  return out
end

-- The answer that packing.py takes apart: word, now, the hash's fields and values, size of `later` and `fresh`, the
-- first moment at which they have something ('' = none), head.
local function answer(word)
  local flat = {}
  for name, value in pairs(fields) do
    flat[#flat + 1] = name
    flat[#flat + 1] = value
  end
  local later, fresh = redis.call('ZCARD', stem .. 'later'), redis.call('ZCARD', stem .. 'fresh')
  local first = later > 0 and redis.call('ZRANGE', stem .. 'later', 0, 0, 'WITHSCORES')[2] or ''
  if fresh > 0 and number('fresh_gap') > 0 and (first == '' or number('fresh_at') < tonumber(first)) then
    first = text(number('fresh_at'))
  end
  return {word, text(now), flat, later + fresh, first, head()}
end
