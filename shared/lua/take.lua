-- take.lua: what offer.lua and commit.lua share: URLs into the queues of any number of sites, each at most once.
--
-- A Redis Cluster is asked for one site a call, the one of KEYS[1]. On one server a call may also name other sites, and
-- with each its entry in the index and the inbox of its owner, so that one step does what is one promise (P2).
--
-- KEYS[1]  not looked at: the document names the sites
-- Returns  what take_all says below
-- Errors   SHARED where a key that is no site's is not ours; whatever is wrong with a site is a letter of its URLs

local AGAIN_LOOK = 1000    -- how far down a queue a URL that is asked for again is looked for
local INBOX_MAX = 100000   -- hints beyond it are dropped: owners read their arcs again
local INBOX_S = 3600       -- the same for the inbox of a node that never comes back
local SCORES_A_SHARD = 1099511627776  -- 2^40: the index has 256 shards (shared/keys.py)
local TOGETHER = 2           -- more URLs of one site than this are looked up together
local AT_ONCE = 32          -- and so many at most: a bucket grows by no more before it is split
local BILLION = 1000000000 % HASH_RANGE

local seen, buckets, size, taken, queued, urls_max, changes

-- digest = high * 10^9 + low, both exact as doubles; the remainders' product stays below 2^53.
local function hash_of(digest)
  local high = tonumber(string.sub(digest, 1, -10)) or 0
  local low = tonumber(string.sub(digest, -9))
  return ((high % HASH_RANGE) * BILLION + low) % HASH_RANGE
end

local function grow_seen()
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
local function wanted(code, changed_ms)
  if not fields.fresh_gap then
    local names = {'fresh_gap', 'fresh_at', 'pages_n', 'pages_b'}
    for i, value in ipairs(redis.call('HMGET', key, unpack(names))) do
      if value then whole(value, names[i]) end
      fields[names[i]] = value or '0'
    end
  end
  if number('fresh_gap') == 0 then return false end
  local page = unpacked(pages_now()(code))
  if not page or (tonumber(page[7]) or 0) >= changed_ms then return false end
  local bare = string.match(code, '^[^ ]*')
  local at = redis.call('ZSCORE', stem .. 'fresh', bare)
  if not at or tonumber(at) <= now then return false end
  redis.call('ZADD', stem .. 'fresh', text(now), bare)
  return true
end

-- A robots.txt that other sites wait for is no page of this one: it neither hides the page of its URL nor ends its
-- recrawls. `later` holds a URL once by itself; it moves to the queue with the owner's next call.
local function take_for_others(class, code)
  if redis.call('LPOS', stem .. 'queue:' .. class, code, 'MAXLEN', AGAIN_LOOK) then return 'K' end
  if redis.call('ZCARD', stem .. 'later') >= urls_max then return 'F' end
  redis.call('ZADD', stem .. 'later', text(now), class .. ':' .. code)
  return 'A'
end

local function take_again(class, code)
  for _, other in ipairs(taken[class] or {}) do
    if other == code then return 'K' end
  end
  if redis.call('LPOS', stem .. 'queue:' .. class, code, 'MAXLEN', AGAIN_LOOK) then return 'K' end
  -- `later` holds a URL once by itself; it moves to the queue with the owner's next call. It waits for no slot too.
  redis.call('ZREM', stem .. 'fresh', string.match(code, '^[^ ]*'))
  redis.call('ZADD', stem .. 'later', text(now), class .. ':' .. code)
  return 'A'
end

-- `how`: the class, 10 more if the URL is asked for again, 20 more if it is a robots.txt that other sites wait for.
local function take(digest, hash, how, code, at)
  local class = how % 10
  if how >= 20 then return take_for_others(class, code) end
  local bucket = stem .. 'seen:' .. bucket_of(hash, buckets, size)
  local full = seen >= urls_max
  if full and redis.call('SISMEMBER', bucket, digest) == 0 then return 'F' end
  if not full and redis.call('SADD', bucket, digest) == 1 then
    seen = seen + 1
    queued = queued + 1
    local codes = taken[class] or {}
    taken[class] = codes
    codes[#codes + 1] = code
    if seen > buckets * SEEN_PER_BUCKET then grow_seen() end
    return 'A'
  end
  if how >= 10 then return take_again(class, code) end
  local changed_ms = changes and changes[at]
  return changed_ms and wanted(code, changed_ms) and 'C' or 'K'
end

local function all_plain(urls, first, last)
  for at = first + 2, last, 4 do
    if urls[at] >= 10 then return false end
  end
  return true
end

-- The same for several URLs that are asked for once each, and of which none is one too many: two calls a bucket,
-- whatever their number.
local function take_plain(urls, first, last)
  local before = queued
  local digests_of, told = {}, {}
  for at = first, last, 4 do
    local bucket = bucket_of(urls[at + 1], buckets, size)
    local digests = digests_of[bucket]
    if not digests then
      digests = {}
      digests_of[bucket] = digests
    end
    digests[#digests + 1] = urls[at]
  end
  for bucket, digests in pairs(digests_of) do
    local name, fresh = stem .. 'seen:' .. bucket, {}
    if #digests == 1 then
      if redis.call('SADD', name, digests[1]) == 1 then told[digests[1]] = 'A' end
    else
      for i, there in ipairs(redis.call('SMISMEMBER', name, unpack(digests))) do
        if there == 0 and not told[digests[i]] then
          told[digests[i]] = 'A'
          fresh[#fresh + 1] = digests[i]
        end
      end
      if #fresh > 0 then redis.call('SADD', name, unpack(fresh)) end
    end
  end
  local letters = {}
  for at = first, last, 4 do
    local digest, class = urls[at], urls[at + 2]
    if told[digest] == 'A' then
      told[digest] = 'K'  -- a second one of the same
      local codes = taken[class] or {}
      taken[class] = codes
      codes[#codes + 1] = urls[at + 3]
      queued = queued + 1
      letters[#letters + 1] = 'A'
    else
      local changed_ms = changes and changes[at]
      letters[#letters + 1] = changed_ms and wanted(urls[at + 3], changed_ms) and 'C' or 'K'
    end
  end
  seen = seen + queued - before
  while seen > buckets * SEEN_PER_BUCKET do grow_seen() end
  return table.concat(letters)
end

-- A key that is no site's: what is wrong with it is wrong with the store.
local function shared(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, 'WRONGTYPE', 1, true) then error('SHARED ' .. answer.err) end
    error(answer.err)
  end
  return answer
end

-- Letters of the site's URLs from `first` to `last` of the flat array, and whether it went from idle to pending.
local function take_of(asked, name, score, first, last)
  local urls = asked.urls
  enter(asked.stem .. '{' .. name .. '}:site')
  local known = redis.call('HMGET', key, 'pending', 'seen_n', 'seen_b')
  local pending = whole(known[1] or '0', 'pending')
  seen, buckets = whole(known[2] or '0', 'seen_n'), whole(known[3] or '1', 'seen_b')
  size = size_of(buckets)
  taken, queued = {}, 0
  -- The index first, since an empty site in it is harmless. A site that took URLs is in it, and never leaves it.
  if score > 0 and (seen == 0 or pending == 0) then
    shared('ZADD', string.format('%sindex:%02x', asked.stem, math.floor(score / SCORES_A_SHARD)), text(score), name)
  end
  local letters
  if last - first > TOGETHER * 4 and seen + (last - first + 1) / 4 <= urls_max and all_plain(urls, first, last) then
    local said = {}
    for at = first, last, AT_ONCE * 4 do
      said[#said + 1] = take_plain(urls, at, math.min(at + AT_ONCE * 4 - 1, last))
    end
    letters = table.concat(said)
  else
    local said = {}
    for at = first, last, 4 do said[#said + 1] = take(urls[at], urls[at + 1], urls[at + 2], urls[at + 3], at) end
    letters = table.concat(said)
  end
  if queued > 0 then
    for class, codes in pairs(taken) do redis.call('RPUSH', stem .. 'queue:' .. class, unpack(codes)) end
    redis.call('HSET', key, 'pending', pending + queued, 'seen_n', seen, 'seen_b', buckets)
  end
  return letters, pending == 0 and string.find(letters, 'A', 1, true) ~= nil
end

-- A site that cannot be read must not hold up the others; whatever else goes wrong is no site's. An error that a script
-- raises itself names its line.
local function is_damage(trouble)
  if string.find(trouble, 'WRONGTYPE', 1, true) then return not string.find(trouble, 'SHARED', 1, true) end
  return string.find(trouble, '^user_script:') ~= nil
end

-- Returns one letter a URL, all sites in a row (A accepted, K known, F full, C known, and looked at before it changed: it
-- comes next among recrawls, D damaged: its site was left alone), and the numbers of the sites that went from idle to
-- pending without a hint to their owner.
local function take_all(asked)
  local letters, untold, hints = {}, {}, {}
  urls_max, changes = asked.max, asked.changes
  local first = 1
  for i = 1, #asked.sites, 4 do
    local name, inbox, last = asked.sites[i], asked.sites[i + 2], first + asked.sites[i + 3] * 4 - 1
    local sound, said, woken = pcall(take_of, asked, name, asked.sites[i + 1], first, last)
    if not sound then
      local trouble = type(said) == 'table' and said.err or said
      if not is_damage(trouble) then error(trouble, 0) end
      said, woken = string.rep('D', asked.sites[i + 3]), false
    end
    letters[#letters + 1] = said
    if woken then
      hints[inbox] = hints[inbox] or {}
      table.insert(hints[inbox], (i + 3) / 4)
    end
    first = last + 1
  end
  -- The hints last, since they are never the only trace. Inbox 0 is that of nobody.
  for inbox, numbers in pairs(hints) do
    local length
    if inbox > 0 then
      local names = {}
      for n, number in ipairs(numbers) do names[n] = asked.sites[number * 4 - 3] end
      local box = asked.inboxes[inbox]
      length = redis.pcall('RPUSH', box, unpack(names))
      if type(length) == 'number' then
        if length > INBOX_MAX then redis.call('LTRIM', box, -INBOX_MAX, -1) end
        redis.call('EXPIRE', box, INBOX_S)
      end
    end
    if type(length) ~= 'number' then
      for _, number in ipairs(numbers) do untold[#untold + 1] = number end
    end
  end
  return table.concat(letters), untold
end
