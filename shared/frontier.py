"""The frontier in Redis or Valkey: offer, claim and commit, one script a site; it and lists.py alone import redis.

It knows no ring and no clock: whoever calls says who owns a site, and every moment is the store's own TIME.
A call that timed out may have run all the same: every call is harmless when repeated, and nothing here repeats by
itself. Opened as `strict`, an offer, a claim or a commit is answered once a disk or a replica has it.
"""

import asyncio
import hashlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from typing import Any, Literal, Self, TypeVar

import msgspec
import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared import durability, errors, keys, packing, records

CONNECTIONS_MAX = 32  # one call holds one connection; more callers than this wait their turn
SEALED_CONNECTIONS_MAX = 512  # strict: a call holds its connection until a disk has its writes
OFFERS_PER_CALL = 500  # of one site, so that one script splits at most three buckets of the seen set
CALLS_PER_TRIP = 256  # commands sent before their answers are read: bounds the memory of both ends
SEALED_PER_TRIP = 1_024  # strict: each trip waits for a disk, so there are fewer of them
RANGES_PER_TRIP = 16  # of the site index, each answering with at most a page
PAGE_OF_SITES = 1_000
REPORT_S = 60  # a report is written every second; one this old is of a node that is gone
UNTOLD_PER_CALL = 10_000
UNTOLD_MAX = 100_000  # hints owed beyond it are dropped: owners read their arcs again
INBOX_MAX = 100_000  # hints beyond it are dropped: owners read their arcs again
INBOX_S = 3_600  # the same for the inbox of a node that never comes back
HANDOFFS_MAX = 1_000_000
ROBOTS_PER_TRIP = 16  # robots answers read at once: each may hold 500 KiB

# What a store says when it is there but cannot serve: the caller waits, as for one that does not answer.
NOT_NOW = (
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
)

Command = durability.Command
Durability = Literal["default", "strict"]
T = TypeVar("T")


class _Script:
    """One atomic step: the first line of its file (flags for the store), site.lua, the rest of its file."""

    def __init__(self, name: str) -> None:
        folder = resources.files("shared") / "lua"
        first, _, rest = (folder / f"{name}.lua").read_text().partition("\n")
        self.text = f"{first}\n{(folder / 'site.lua').read_text()}\n{rest}"
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


SCRIPTS = {name: _Script(name) for name in ("offer", "claim", "try", "commit", "look")}


class Frontier:
    """One connection pool to the store of one cluster."""

    def __init__(self, client: "redis.asyncio.Redis", cluster: str, *, call_s: float) -> None:
        self.cluster = cluster
        self._client = client
        self._call_s = call_s
        self._keys = keys.RedisKeys(cluster)
        self._witness: durability.Witness | None = None
        """Who is asked whether an offer, a claim or a commit lasts; None: nobody."""
        self.newest_tenure = 0
        """The latest epoch for which a claim was refused."""
        self._untold: dict[str, None] = {}
        """Sites that went from idle to pending, or may have, and whose owner has no hint yet."""
        self._report = msgspec.json.Decoder(records.NodeReport)
        self._handoff = msgspec.json.Decoder(records.Handoff)

    @classmethod
    async def open(cls, url: str, cluster: str, *, call_s: float = 2.0, durability: Durability = "default") -> Self:
        """Connect, and load the scripts.

        Raises StoreUnavailable, or ConfigError for a URL of no store and for a store that cannot be `strict`.
        """
        try:
            pool = redis.asyncio.BlockingConnectionPool.from_url(
                url,
                max_connections=SEALED_CONNECTIONS_MAX if durability == "strict" else CONNECTIONS_MAX,
                timeout=call_s,
                socket_timeout=call_s,
                socket_connect_timeout=call_s,
                retry=Retry(NoBackoff(), 0),
                protocol=2,  # under RESP3, redis 8.1.0 does not notice a connection that the server closed
            )
        except ValueError as error:
            raise errors.ConfigError(f"redis URL {url!r}: {error}") from error
        frontier = cls(redis.asyncio.Redis.from_pool(pool), cluster, call_s=call_s)
        try:
            await frontier._trip([("SCRIPT", "LOAD", script.text) for script in SCRIPTS.values()])
            if durability == "strict":
                frontier._witness = await frontier._find_witness()
        except errors.CrawlError:
            await frontier.close()
            raise
        return frontier

    async def _find_witness(self) -> durability.Witness:
        """The disk, or a replica where the store cannot speak for its disk."""
        mark = self._keys.mark()
        disk = durability.disk(mark, call_s=self._call_s)
        (said,) = await self._pipe([disk.question])
        if isinstance(said, exceptions.ResponseError) and "unknown command" in str(said).lower():
            (info,) = await self._trip([("INFO", "replication")])
            if not int(info["connected_slaves"]):
                raise durability.refused("it cannot say when a write is on its disk", durability.REPLICA_ADVICE)
            return durability.replica(mark, call_s=self._call_s)
        (policy,) = await self._pipe([("CONFIG", "GET", "appendfsync")])  # which may be forbidden
        if isinstance(said, exceptions.ResponseError):
            raise durability.refused(str(said), durability.DISK_ADVICE)
        if policy == [b"appendfsync", b"no"]:
            raise durability.refused("it never syncs its append-only file", "set `appendfsync everysec` or `always`")
        return disk

    async def close(self) -> None:
        await self._client.aclose()

    async def ping(self) -> int:
        """The store's TIME in milliseconds."""
        seconds, microseconds = (await self._trip([("TIME",)]))[0]
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def run_id(self) -> str:
        """Another one after each start of the store: what was remembered of its answers may then be wrong."""
        (info,) = await self._trip([("INFO", "server")])
        return str(info["run_id"])

    # --- URLs -----------------------------------------------------------------------------------------------

    async def offer(
        self,
        offers: Sequence[records.Offer],
        *,
        owner_of: Callable[[str], str | None],
        pages_max: int,
    ) -> list[str]:
        """`accepted`, `known` or `full` for each offer, in their order.

        P2: the index first, since an empty site in it is harmless and a queue out of it would be lost; then
        the queues; the owner's hint last, since it is never the only trace.
        """
        shards: dict[int, dict[str, int]] = defaultdict(dict)
        by_site: dict[str, list[int]] = defaultdict(list)
        for at, offer in enumerate(offers):
            shards[offer.score >> 40][offer.site] = offer.score
            by_site[offer.site].append(at)
        index = [self._index(shard, sites) for shard, sites in shards.items()]
        await self._trip(index)

        parts = [(site, part) for site, whole in by_site.items() for part in _chunks(whole, OFFERS_PER_CALL)]
        asked = [(site, packing.offer([offers[at] for at in part], pages_max=pages_max)) for site, part in parts]
        try:
            # Strict: the index again, with the queues. A store that crashed since may have lost it.
            answers = await self._run("offer", asked, lasting=True, before=index)
        except (errors.StoreUnavailable, asyncio.CancelledError):
            # It may have run all the same, and the repeat would find nothing new to tell.
            self._untold.update(dict.fromkeys(by_site))
            raise
        verdicts = [""] * len(offers)
        for (site, part), (woke, letters) in zip(parts, answers, strict=True):
            for at, verdict in zip(part, packing.verdicts(letters), strict=True):
                verdicts[at] = verdict
            if woke:
                self._untold[site] = None
        with suppress(errors.StoreUnavailable):  # the URLs are safe; who is not told now is told later
            await self.tell_owners(owner_of)
        return verdicts

    async def tell_owners(self, owner_of: Callable[[str], str | None]) -> None:
        """Leave the hints that are owed; while no view says who the owner is, they stay owed."""
        by_owner: dict[str, list[str]] = defaultdict(list)
        for site in itertools.islice(self._untold, UNTOLD_PER_CALL):
            owner = owner_of(site)
            if owner is not None:
                by_owner[owner].append(site)
        await self._trip([command for node, sites in by_owner.items() for command in self._hint(node, sites)])
        for site in itertools.chain.from_iterable(by_owner.values()):
            self._untold.pop(site, None)
        while len(self._untold) > UNTOLD_MAX:
            self._untold.pop(next(iter(self._untold)))

    async def claim(
        self, sites: Sequence[str], node: str, epoch: int, *, delay_s: float, again: bool = False
    ) -> list[records.SiteRecord | None]:
        """Begin a tenure of each site; None where a newer one holds it. Its due is a full delay ahead.

        `again`: these tenures were answered for before and are only read, so there is nothing new that must last.
        """
        asked = packing.claim(node, epoch, delay_s=delay_s)
        answers = await self._run("claim", [(site, asked) for site in sites], lasting=not again)
        newer = [int(answer[1]) for answer in answers if answer[0] == b"STALE"]
        self.newest_tenure = max(self.newest_tenure, *newer, 0)
        return [
            None if answer[0] == b"STALE" else packing.site_record(site, answer)
            for site, answer in zip(sites, answers, strict=True)
        ]

    async def attempt(self, site: str, node: str, tenure: int, url: str) -> int:
        """Note that this tenure begins with this URL; how many before it, in a row, did and ended without a commit.

        For tenures that follow one without a commit. Raises StaleEpoch when a newer one holds the site.
        """
        (answer,) = await self._run("try", [(site, packing.attempt(site, node, tenure=tenure, url=url))])
        if answer[0] == b"FENCED":
            raise errors.StaleEpoch(f"{site}: tenure {tenure} of {node} is over")
        return int(answer[1])

    async def commit(self, site: str, node: str, tenure: int, n: int, change: records.Commit) -> records.Committed:
        """Apply all of one visit, once however often it is asked for.

        What is set aside must be in `done` too. Raises StaleEpoch when a newer tenure holds the site; a
        longer due or delay has been kept even so.
        """
        asked = packing.commit(site, node, tenure=tenure, n=n, change=change)
        (answer,) = await self._run("commit", [(site, asked)], lasting=True)
        word = answer[0]
        if word == b"FENCED":
            raise errors.StaleEpoch(f"{site}: tenure {tenure} of {node} is over")
        record = packing.site_record(site, answer)
        return records.Committed(record=record, repeated=word == b"REPEATED", forgotten=word == b"FORGOTTEN")

    # --- sites ----------------------------------------------------------------------------------------------

    async def look(self, site: str) -> dict[str, Any] | None:
        """All that the store knows of a site, changing nothing; None for one it never heard of."""
        (answer,) = await self._run("look", [(site, ())])
        if answer[0] == b"UNKNOWN":
            return None
        return packing.look(site, answer) | {"robots": await self._robots_known(site)}

    async def robots(self, site: str, origin: str) -> records.RobotsRecord | None:
        (packed,) = await self._trip([("HGET", self._keys.robots(site), origin)])
        return packing.robots(packed)

    async def _robots_known(self, site: str) -> dict[str, dict[str, Any]]:
        """What each origin's robots.txt came to, all origins of the site; their bodies pass by a few at a time."""
        key = self._keys.robots(site)
        (origins,) = await self._trip([("HKEYS", key)])
        known = {}
        for part in _chunks(sorted(origins), ROBOTS_PER_TRIP):
            (answers,) = await self._trip([("HMGET", key, *part)])
            for origin, one in zip(part, map(packing.robots, answers), strict=True):
                if one is not None:
                    known[origin.decode()] = {
                        "verdict": one.verdict,
                        "status": one.status,
                        "fetched_ms": one.fetched_ms,
                        "expires_ms": one.expires_ms,
                    }
        return known

    async def sites_in(self, ranges: Sequence[tuple[int, int, int]]) -> AsyncIterator[list[str]]:
        """The sites of index ranges (shard, lowest score, highest score), both ends included, in pages."""
        # The fourth number is how many sites of the lowest score were read: a page may end among equals.
        waiting = [(shard, low, high, 0) for shard, low, high in ranges]
        while waiting:
            asked, waiting = waiting[:RANGES_PER_TRIP], waiting[RANGES_PER_TRIP:]
            answers = await self._trip([self._range(*one) for one in asked])
            found: list[str] = []
            for (shard, low, high, skipped), flat in zip(asked, answers, strict=True):
                found.extend(site.decode() for site in flat[::2])
                if len(flat) == 2 * PAGE_OF_SITES:
                    last = int(flat[-1])
                    equals = flat[1::2].count(flat[-1]) + (skipped if last == low else 0)
                    waiting.append((shard, last, high, equals))
            for page in _chunks(found, PAGE_OF_SITES):
                yield list(page)

    async def site_count(self) -> int:
        return sum(await self._trip([("ZCARD", self._keys.index(shard)) for shard in range(keys.INDEX_SHARDS)]))

    # --- nodes ----------------------------------------------------------------------------------------------

    async def inbox(self, node: str, *, at_most: int) -> list[str]:
        """The oldest hints in a node's inbox: sites that went from idle to pending. They stay until `empty_inbox`."""
        (sites,) = await self._trip([("LRANGE", self._keys.inbox(node), 0, at_most - 1)])
        return [site.decode() for site in sites]

    async def empty_inbox(self, node: str, count: int) -> None:
        """Remove the oldest hints, once they have been followed."""
        await self._trip([("LTRIM", self._keys.inbox(node), count, -1)])

    async def wake(self, node: str, sites: Sequence[str]) -> None:
        """Leave a hint for the owner of these sites."""
        if sites:
            await self._trip(self._hint(node, sites))

    async def report(self, report: records.NodeReport) -> None:
        await self._trip([("SET", self._keys.report(report.id), records.encode_json(report), "EX", REPORT_S)])

    async def reports(self, nodes: Sequence[str]) -> dict[str, records.NodeReport]:
        """The reports there are; a node that has been silent for a minute has none."""
        answers = await self._trip([("GET", self._keys.report(node)) for node in nodes])
        return {
            node: self._report.decode(answer) for node, answer in zip(nodes, answers, strict=True) if answer is not None
        }

    # --- handoff log ----------------------------------------------------------------------------------------

    async def append_handoffs(self, entries: Sequence[records.Handoff]) -> None:
        """Append in order; the oldest entries go when there are about a million."""
        key = self._keys.handoffs()
        await self._trip(
            [("XADD", key, "MAXLEN", "~", HANDOFFS_MAX, "*", "line", records.encode_json(one)) for one in entries]
        )

    async def read_handoffs(
        self, after: str = "-", *, at_most: int, block_ms: int | None = None
    ) -> list[tuple[str, records.Handoff]]:
        """(id, entry) of the entries after the one of that id, oldest first; `-` is before the first.

        Waits `block_ms` for the first of them, or half a call's time if that is shorter.
        """
        wait = () if block_ms is None else ("BLOCK", max(1, min(block_ms, int(self._call_s * 500))))
        start = "0" if after == "-" else after
        (streams,) = await self._trip([("XREAD", "COUNT", at_most, *wait, "STREAMS", self._keys.handoffs(), start)])
        entries = streams[0][1] if streams else []
        return [(name.decode(), self._handoff.decode(fields[b"line"])) for name, fields in entries]

    # --- the wire -------------------------------------------------------------------------------------------

    def _index(self, shard: int, sites: dict[str, int]) -> Command:
        return (
            "ZADD",
            self._keys.index(shard),
            *(part for site, score in sites.items() for part in (score, site)),
        )

    def _range(self, shard: int, low: int, high: int, skipped: int) -> Command:
        key = self._keys.index(shard)
        return ("ZRANGEBYSCORE", key, low, high, "WITHSCORES", "LIMIT", skipped, PAGE_OF_SITES)

    def _hint(self, node: str, sites: Sequence[str]) -> list[Command]:
        key = self._keys.inbox(node)
        return [("RPUSH", key, *sites), ("LTRIM", key, -INBOX_MAX, -1), ("EXPIRE", key, INBOX_S)]

    async def _run(
        self,
        name: str,
        calls: Sequence[tuple[str, packing.Arguments]],
        *,
        lasting: bool = False,
        before: Sequence[Command] = (),
    ) -> list[Any]:
        """One call of the script for each (site, arguments); loaded again if the store has lost it.

        `lasting`: with a witness, answered once it has confirmed them, and `before` with them.
        """
        script = SCRIPTS[name]
        witness = self._witness if lasting else None

        async def send(commands: Sequence[Command], *, missing_script: str) -> list[Any]:
            if witness is None:
                return await self._trip(commands, missing_script=missing_script)
            return await self._sealed(commands, witness, before=before, missing_script=missing_script)

        commands = [("EVALSHA", script.sha, 1, self._keys.site(site), *asked) for site, asked in calls]
        answers = await send(commands, missing_script="keep")
        missed = [at for at, answer in enumerate(answers) if isinstance(answer, exceptions.NoScriptError)]
        if missed:
            await self._trip([("SCRIPT", "LOAD", script.text)])
            again = await send([commands[at] for at in missed], missing_script="raise")
            for at, answer in zip(missed, again, strict=True):
                answers[at] = answer
        return answers

    async def _trip(self, commands: Sequence[Command], *, missing_script: str = "raise") -> list[Any]:
        """Send all, then read all answers: a round trip for each CALLS_PER_TRIP commands."""
        answers: list[Any] = []
        for part in _chunks(commands, CALLS_PER_TRIP):
            answers.extend(await self._pipe(part))
        return _checked(answers, missing_script=missing_script)

    async def _sealed(
        self,
        commands: Sequence[Command],
        witness: durability.Witness,
        *,
        before: Sequence[Command],
        missing_script: str,
    ) -> list[Any]:
        """The same, and each trip's writes confirmed. All on one connection: it does not outlive a crash of the store,
        so that the confirmation is of the store that took the writes.
        """
        answers: list[Any] = []
        for part in _chunks(commands, SEALED_PER_TRIP):
            *said, confirmed = await self._pipe([*before, *part, *witness.seal()])
            answers.extend(_checked(said, missing_script=missing_script)[len(before) : -1])
            witness.check(confirmed)
        return answers

    async def _pipe(self, commands: Sequence[Command]) -> list[Any]:
        """One round trip on one connection; what the store complains about stands among the answers."""
        with _translated():
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return list(await pipeline.execute(raise_on_error=False))


def _checked(answers: list[Any], *, missing_script: str) -> list[Any]:
    """The answers, if none of them is an error."""
    for answer in answers:
        kept = missing_script == "keep" and isinstance(answer, exceptions.NoScriptError)
        if isinstance(answer, Exception) and not kept:
            with _translated():
                raise answer
    return answers


@contextmanager
def _translated() -> Iterator[None]:
    """The library's errors in our words; a complaint about what we sent is a bug and stays as it is."""
    try:
        yield
    except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
        raise errors.StoreUnavailable(f"redis: {error}") from error
    except exceptions.ResponseError as error:
        if isinstance(error, exceptions.ReadOnlyError | exceptions.OutOfMemoryError | exceptions.ClusterError):
            raise errors.StoreUnavailable(f"redis: {error}") from error
        if str(error).startswith(NOT_NOW):
            raise errors.StoreUnavailable(f"redis: {error}") from error
        raise


def _chunks(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (whole[at : at + size] for at in range(0, len(whole), size))
