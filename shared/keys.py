"""The names of every key in Redis and etcd.

All keys of one site carry the hash tag `{site}`, so that each script runs in one slot of a Redis Cluster.
"""

INDEX_SHARDS = 256  # by the top 8 bits of a position: short enough ranges, one shard a slot


class RedisKeys:
    """Redis key names of one cluster; an instance is a value."""

    __slots__ = ("_prefix", "cluster")

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._prefix = f"cr:{cluster}:"

    @property
    def stem(self) -> str:
        """How every key begins: offer.lua makes those of a site from it, `inbox` and `index` too."""
        return self._prefix

    def site(self, site: str) -> str:
        return f"{self._prefix}{{{site}}}:site"

    def queue(self, site: str, priority: int) -> str:
        return f"{self._prefix}{{{site}}}:queue:{priority}"

    def later(self, site: str) -> str:
        return f"{self._prefix}{{{site}}}:later"

    def fresh(self, site: str) -> str:
        """Pages to visit again, by when."""
        return f"{self._prefix}{{{site}}}:fresh"

    def seen(self, site: str) -> str:
        """The stem; a bucket's number follows after a colon."""
        return f"{self._prefix}{{{site}}}:seen"

    def pages(self, site: str) -> str:
        """The stem; a bucket's number follows after a colon."""
        return f"{self._prefix}{{{site}}}:pages"

    def robots(self, site: str) -> str:
        return f"{self._prefix}{{{site}}}:robots"

    def index(self, shard: int) -> str:
        return f"{self._prefix}index:{shard:02x}"

    def inbox(self, node: str) -> str:
        return f"{self._prefix}inbox:{node}"

    def report(self, node: str) -> str:
        """A node's own figures as JSON, written every second, expiring by itself."""
        return f"{self._prefix}report:{node}"

    def content(self, digest: bytes) -> str:
        """Where content was first seen: 4,096 hashes by the digest's first 12 bits."""
        return f"{self._prefix}content:{digest.hex()[:3]}"

    def scopes(self) -> str:
        """Rules that came with seeds."""
        return f"{self._prefix}scopes"

    def paused(self) -> str:
        """Sites that are paused, and `*` for all of them."""
        return f"{self._prefix}paused"

    def handoffs(self) -> str:
        return f"{self._prefix}handoffs"

    def mark(self, tag: str = "") -> str:
        """Written for the sake of writing: see shared/durability.py. On a Redis Cluster the tag chooses its slot."""
        return f"{self._prefix}mark:{{{tag}}}" if tag else f"{self._prefix}mark"


class EtcdKeys:
    """etcd key names of one cluster; an instance is a value."""

    __slots__ = ("cluster", "prefix")

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.prefix = f"/crawlring/{cluster}/"

    def members(self) -> str:
        return f"{self.prefix}members/"

    def member(self, node: str) -> str:
        return f"{self.prefix}members/{node}"

    def view(self) -> str:
        return f"{self.prefix}view"

    def beats(self) -> str:
        return f"{self.prefix}beats/"

    def beat(self, incarnation: int) -> str:
        return f"{self.prefix}beats/{incarnation}"

    def overrides(self) -> str:
        return f"{self.prefix}overrides/"

    def override(self, site: str) -> str:
        return f"{self.prefix}overrides/{site}"

    def rejoin(self, node: str) -> str:
        """Seconds a node waits before it joins again after its lease was killed by command."""
        return f"{self.prefix}rejoin/{node}"
