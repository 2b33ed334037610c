#!lua
-- offer.lua: take URLs into a site's queues, each at most once.
--
-- KEYS[1]  the site's hash (see site.lua)
-- ARGV[1]  msgpack {max = URLs ever accepted, urls = {{digest as decimal text, class 0-9, again 0 or 1, code}, ...}}
-- Returns  {1 if the site went from idle to pending else 0, one letter a URL: A accepted, K known, F full}
-- Errors   none. A repeat answers K for what the first call took.
local AGAIN_LOOK = 1000  -- how far down a queue a URL that is asked for again is looked for

local asked = cmsgpack.unpack(ARGV[1])
local idle = number('pending') == 0
local letters, woken = {}, false

-- digest = high * 10^9 + low, both exact as doubles; the remainders' product stays below 2^53.
local function hash_of(digest)
  local high = tonumber(string.sub(digest, 1, -10)) or 0
  local low = tonumber(string.sub(digest, -9))
  return ((high % HASH_RANGE) * (1000000000 % HASH_RANGE) + low) % HASH_RANGE
end

local function grow()
  local buckets = buckets_in('seen_b')
  local from = stem .. 'seen:' .. (buckets - size_of(buckets))
  local moving = {}
  for _, digest in ipairs(redis.call('SMEMBERS', from)) do
    if bucket_of(hash_of(digest), buckets + 1) == buckets then moving[#moving + 1] = digest end
  end
  if #moving > 0 then
    redis.call('SADD', stem .. 'seen:' .. buckets, unpack(moving))
    redis.call('SREM', from, unpack(moving))
  end
  put('seen_b', buckets + 1)
end

local function take(digest, class, again, code)
  local bucket = stem .. 'seen:' .. bucket_of(hash_of(digest), buckets_in('seen_b'))
  local queue = stem .. 'queue:' .. class
  local full = number('seen_n') >= asked.max
  if full and redis.call('SISMEMBER', bucket, digest) == 0 then return 'F' end
  if not full and redis.call('SADD', bucket, digest) == 1 then
    redis.call('RPUSH', queue, code)
    add('pending', 1)
    add('seen_n', 1)
    if number('seen_n') > buckets_in('seen_b') * SEEN_PER_BUCKET then grow() end
    return 'A'
  end
  if again == 0 or redis.call('LPOS', queue, code, 'MAXLEN', AGAIN_LOOK) then return 'K' end
  -- `later` holds a URL once by itself; it moves to the queue with the owner's next call.
  redis.call('ZADD', stem .. 'later', text(now), class .. ':' .. code)
  return 'A'
end

for i, url in ipairs(asked.urls) do
  letters[i] = take(url[1], url[2], url[3], url[4])
  woken = woken or letters[i] == 'A'
end
save()
return {(idle and woken) and 1 or 0, table.concat(letters)}
