#!lua
-- offer.lua: take URLs into a site's queues, each at most once.
--
-- KEYS[1]  the site's hash (see site.lua)
-- ARGV[1]  msgpack {max = URLs ever accepted, urls = {{digest as decimal text, class 0-9, again 0 or 1, code, changed_ms
--          (0 = not said)}, ...}}
-- Returns  {1 if the site went from idle to pending else 0, one letter a URL: A accepted, K known, F full,
--          C known, and looked at before it changed: it comes next among recrawls}
-- Errors   none. A repeat answers K for what the first call took.
local AGAIN_LOOK = 1000  -- how far down a queue a URL that is asked for again is looked for

local asked = cmsgpack.unpack(ARGV[1])
local known = redis.call('HMGET', KEYS[1], 'pending', 'seen_n', 'seen_b', 'pages_n', 'pages_b', 'fresh_gap', 'fresh_at')
for i, name in ipairs({'pages_n', 'pages_b', 'fresh_gap', 'fresh_at'}) do
  if known[3 + i] then whole(known[3 + i], name) end
  fields[name] = known[3 + i] or nil
end
local idle = whole(known[1] or '0', 'pending') == 0
local seen, buckets = whole(known[2] or '0', 'seen_n'), whole(known[3] or '1', 'seen_b')
local size = size_of(buckets)
local letters, taken, queued, woken = {}, {}, 0, false

-- digest = high * 10^9 + low, both exact as doubles; the remainders' product stays below 2^53.
local BILLION = 1000000000 % HASH_RANGE
local function hash_of(digest)
  local high = tonumber(string.sub(digest, 1, -10)) or 0
  local low = tonumber(string.sub(digest, -9))
  return ((high % HASH_RANGE) * BILLION + low) % HASH_RANGE
end

local function grow()
  local from = stem .. 'seen:' .. (buckets - size)
  local new = buckets
  buckets = buckets + 1
  size = size_of(buckets)
  local moving = {}
  for _, digest in ipairs(redis.call('SMEMBERS', from)) do
    if bucket_of(hash_of(digest), buckets, size) == new then moving[#moving + 1] = digest end
  end
  if #moving > 0 then
    redis.call('SADD', stem .. 'seen:' .. new, unpack(moving))
    redis.call('SREM', from, unpack(moving))
  end
end

-- Every page that was visited is in `fresh` or in a queue, if pages are visited again at all.
local page_of
local function wanted(code, changed_ms)
  if changed_ms == 0 or number('fresh_gap') == 0 then return false end
  page_of = page_of or pages_now()
  local page = unpacked(page_of(code))
  if not page or (tonumber(page[7]) or 0) >= changed_ms then return false end
  local key, bare = stem .. 'fresh', string.match(code, '^[^ ]*')
  local at = redis.call('ZSCORE', key, bare)
  if not at or tonumber(at) <= now then return false end
  redis.call('ZADD', key, text(now), bare)
  return true
end

-- A robots.txt that other sites wait for is no page of this one: it neither hides the page of its URL nor ends its
-- recrawls. `later` holds a URL once by itself; it moves to the queue with the owner's next call.
local function take_for_others(class, code)
  if redis.call('LPOS', stem .. 'queue:' .. class, code, 'MAXLEN', AGAIN_LOOK) then return 'K' end
  if redis.call('ZCARD', stem .. 'later') >= asked.max then return 'F' end
  redis.call('ZADD', stem .. 'later', text(now), class .. ':' .. code)
  return 'A'
end

local function take(digest, class, again, code, changed_ms)
  if string.find(code, ' r', 1, true) then return take_for_others(class, code) end
  local bucket = stem .. 'seen:' .. bucket_of(hash_of(digest), buckets, size)
  local full = seen >= asked.max
  if full and redis.call('SISMEMBER', bucket, digest) == 0 then return 'F' end
  if not full and redis.call('SADD', bucket, digest) == 1 then
    seen = seen + 1
    queued = queued + 1
    local codes = taken[class] or {}
    taken[class] = codes
    codes[#codes + 1] = code
    if seen > buckets * SEEN_PER_BUCKET then grow() end
    return 'A'
  end
  if again == 0 then return wanted(code, changed_ms) and 'C' or 'K' end
  for _, other in ipairs(taken[class] or {}) do
    if other == code then return 'K' end
  end
  if redis.call('LPOS', stem .. 'queue:' .. class, code, 'MAXLEN', AGAIN_LOOK) then return 'K' end
  -- `later` holds a URL once by itself; it moves to the queue with the owner's next call. It waits for no slot too.
  redis.call('ZREM', stem .. 'fresh', string.match(code, '^[^ ]*'))
  redis.call('ZADD', stem .. 'later', text(now), class .. ':' .. code)
  return 'A'
end

for i, url in ipairs(asked.urls) do
  letters[i] = take(url[1], url[2], url[3], url[4], url[5])
  woken = woken or letters[i] == 'A'
end
if queued > 0 then
  for class, codes in pairs(taken) do redis.call('RPUSH', stem .. 'queue:' .. class, unpack(codes)) end
  redis.call('HINCRBY', KEYS[1], 'pending', queued)
  redis.call('HSET', KEYS[1], 'seen_n', text(seen), 'seen_b', text(buckets))
end
return {(idle and woken) and 1 or 0, table.concat(letters)}
