#!lua
-- offer.lua: take URLs into their sites' queues, each at most once.
--
-- KEYS[1]  the hash of the first site (see site.lua; take.lua says what else is touched)
-- ARGV[1]  msgpack {max = URLs a site ever accepts, stem = how all keys of the cluster begin,
--          sites = {name, its score (0 = leave the index alone), the number of its owner's inbox (0 = not known), how
--          many URLs, and so on}, inboxes = {key},
--          urls = {digest as decimal text, the digest modulo HASH_RANGE, how (see take.lua), code, and so on},
--          changes = {number of the URL's digest in `urls` = changed_ms} (nil = none said)}
-- Returns  {numbers of the sites that woke and whose owner has no hint, one letter a URL}: see take.lua
-- Errors   SHARED where a key that is no site's is not ours. A repeat answers K for what the first call took.
local letters, untold = take_all(cmsgpack.unpack(ARGV[1]))
return {untold, letters}
