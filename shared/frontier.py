"""The frontier in Redis, Valkey or a Redis Cluster: offer, claim and commit, one script a site.

It knows no ring and no clock: whoever calls says who owns a site, and every moment is the store's own TIME.
A call that timed out may have run all the same: every call is harmless when repeated, and nothing here repeats by
itself. Opened as `strict`, an offer, a claim or a commit is answered once a disk or a replica has it.

On a cluster a site's moments (due, last fetch) are its own master's TIME. Where the site moves to another master, or a
replica takes over, whose clock is behind or ahead, it waits longer or less long than its due by that difference. A due
is no more than a courtesy between tenures: the full delay that follows a claim is counted by its owner's own clock.
"""

import asyncio
import hashlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from typing import Any, Literal, Self, TypeVar

import msgspec

from shared import durability, errors, keys, packing, records, scope, slots, stores

OFFERS_PER_CALL = 500  # of one site, so that one script splits at most three buckets of the seen set
PARTS_PER_BREATH = 100  # small ones, packed in one go
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
SCOPES_PER_TRIP = 64  # batches of seeds' rules: each may hold a thousand
PAUSE_VERSION = "#"  # among the names of paused sites, which it cannot be: it counts what was said of them
ROBOTS_PER_TRIP = 16  # robots answers read at once: each may hold 500 KiB

Command = durability.Command
Durability = Literal["default", "strict"]
T = TypeVar("T")


class Script:
    """One atomic step."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _script(name: str) -> Script:
    """The first line of its file (flags for the store), site.lua, the rest of its file."""
    folder = resources.files("shared") / "lua"
    first, _, rest = (folder / f"{name}.lua").read_text().partition("\n")
    return Script(f"{first}\n{(folder / 'site.lua').read_text()}\n{rest}")


SCRIPTS = {name: _script(name) for name in ("offer", "claim", "try", "commit", "look")}
READING = {"look"}


class Frontier:
    """The connections to the store of one cluster."""

    def __init__(self, store: stores.Store, cluster: str, *, call_s: float, strict: bool) -> None:
        self.cluster = cluster
        self._store = store
        self._call_s = call_s
        self._strict = strict
        self._keys = keys.RedisKeys(cluster)
        self.newest_tenure = 0
        """The latest epoch for which a claim was refused."""
        self._untold: dict[str, None] = {}
        """Sites that went from idle to pending, or may have, and whose owner has no hint yet."""
        self._report = msgspec.json.Decoder(records.NodeReport)
        self._handoff = msgspec.json.Decoder(records.Handoff)

    @classmethod
    async def open(cls, url: str, cluster: str, *, call_s: float = 2.0, durability: Durability = "default") -> Self:
        """Connect, and load the scripts. `redis-cluster://` and `rediss-cluster://` name servers of a Redis Cluster.

        Raises StoreUnavailable, or ConfigError for a URL of no store and for a store that cannot be `strict`.
        """
        where = stores.place(url, call_s=call_s, strict=durability == "strict")
        names = keys.RedisKeys(cluster)
        store = slots.Clustered(where, names) if where.clustered else stores.Single(where, mark=names.mark())
        try:
            for script in SCRIPTS.values():
                await store.load(script.text, ())
            if durability == "strict":
                await store.seal()
        except errors.CrawlError:
            await store.close()
            raise
        return cls(store, cluster, call_s=call_s, strict=durability == "strict")

    def servers(self) -> list[tuple[str, int]]:
        """(host, port) of the store's servers that its URL may not name."""
        return [(one.host, one.port) for one in self._store.addresses()]

    async def close(self) -> None:
        await self._store.close()

    async def ping(self) -> int:
        """The store's TIME in milliseconds; a cluster's is that of the first of its masters, and all must answer."""
        ((seconds, microseconds),) = (await self._store.everywhere(("TIME",)))[0]
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def run_id(self) -> str:
        """Another one after each start of a server: what was remembered of its answers may then be wrong."""
        ids = [str(info["run_id"]) for (info,) in await self._store.everywhere(("INFO", "server"))]
        if len(ids) == 1:
            return ids[0]
        return hashlib.sha1(" ".join(sorted(ids)).encode(), usedforsecurity=False).hexdigest()

    # --- URLs -----------------------------------------------------------------------------------------------

    async def offer(
        self,
        offers: Sequence[records.Offer],
        *,
        owner_of: Callable[[str], str | None],
        pages_max: int,
    ) -> list[str]:
        """`accepted`, `known`, `full` or `damaged` (nothing was taken) for each offer, in their order.

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
        asked = []
        for count, (site, part) in enumerate(parts, 1):
            asked.append((site, packing.offer([offers[at] for at in part], pages_max=pages_max)))
            if count % PARTS_PER_BREATH == 0 or len(part) == OFFERS_PER_CALL:
                await asyncio.sleep(0)  # the loop's other work: thousands of URLs take a tenth of a second
        try:
            # Strict: the index again, with the queues. A store that crashed since may have lost it.
            answers = await self._run("offer", asked, lasting=True, before=index)
        except (errors.StoreUnavailable, asyncio.CancelledError):
            # It may have run all the same, and the repeat would find nothing new to tell.
            self._untold.update(dict.fromkeys(by_site))
            raise
        verdicts = [""] * len(offers)
        for (site, part), answer in zip(parts, answers, strict=True):
            damaged = isinstance(answer, errors.DamagedSite)
            woke, letters = (0, packing.DAMAGED * len(part)) if damaged else answer
            for at, verdict in zip(part, packing.verdicts(letters), strict=True):
                verdicts[at] = verdict
            if woke:
                self._untold[site] = None
        # The URLs are safe; who is not told now is told later, or finds them by reading its arcs again.
        with suppress(errors.StoreUnavailable):
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
    ) -> list[records.SiteRecord | errors.DamagedSite | None]:
        """Begin a tenure of each site; None where a newer one holds it. Its due is a full delay ahead.

        A site that cannot be read is an error among the answers: the others are claimed.

        `again`: these tenures were answered for before and are only read, so there is nothing new that must last.
        """
        asked = packing.claim(node, epoch, delay_s=delay_s)
        answers = await self._run("claim", [(site, asked) for site in sites], lasting=not again)
        return [self._claimed(site, answer) for site, answer in zip(sites, answers, strict=True)]

    def _claimed(self, site: str, answer: Any) -> records.SiteRecord | errors.DamagedSite | None:
        try:
            if _sound(answer)[0] != b"STALE":
                return packing.site_record(site, answer)
        except errors.DamagedSite as error:
            return error
        self.newest_tenure = max(self.newest_tenure, int(answer[1]))
        return None

    async def attempt(self, site: str, node: str, tenure: int, url: str) -> int:
        """Note that this tenure begins with this URL; how many before it, in a row, did and ended without a commit.

        For tenures that follow one without a commit. Raises StaleEpoch when a newer one holds the site.
        """
        asked = packing.attempt(site, node, tenure=tenure, url=url)
        answer = _sound(*await self._run("try", [(site, asked)]))
        if answer[0] == b"FENCED":
            raise errors.StaleEpoch(f"{site}: tenure {tenure} of {node} is over")
        return int(answer[1])

    async def commit(self, site: str, node: str, tenure: int, n: int, change: records.Commit) -> records.Committed:
        """Apply all of one visit, once however often it is asked for.

        What is set aside must be in `done` too. Raises StaleEpoch when a newer tenure holds the site; a
        longer due or delay has been kept even so.
        """
        asked = packing.commit(site, node, tenure=tenure, n=n, change=change)
        answer = _sound(*await self._run("commit", [(site, asked)], lasting=True))
        word = answer[0]
        if word == b"FENCED":
            raise errors.StaleEpoch(f"{site}: tenure {tenure} of {node} is over")
        record = packing.site_record(site, answer)
        return records.Committed(record=record, repeated=word == b"REPEATED", forgotten=word == b"FORGOTTEN")

    # --- sites ----------------------------------------------------------------------------------------------

    async def look(self, site: str) -> dict[str, Any] | None:
        """All that the store knows of a site, changing nothing; None for one it never heard of."""
        answer = _sound(*await self._run("look", [(site, ())]))
        if answer[0] == b"UNKNOWN":
            return None
        return packing.look(site, answer) | {"robots": await self._robots_known(site)}

    async def robots(self, site: str, origin: str) -> records.RobotsRecord | None:
        (packed,) = await self._send([("HGET", self._keys.robots(site), origin)], lasting=False)
        return packing.robots(packed)

    async def _robots_known(self, site: str) -> dict[str, dict[str, Any]]:
        """What each origin's robots.txt came to, all origins of the site; their bodies pass by a few at a time."""
        key = self._keys.robots(site)
        (origins,) = await self._send([("HKEYS", key)], lasting=False)
        known = {}
        for part in _chunks(sorted(origins), ROBOTS_PER_TRIP):
            (answers,) = await self._send([("HMGET", key, *part)], lasting=False)
            for origin, one in zip(part, map(packing.robots, answers), strict=True):
                if one is not None and origin.isascii():
                    known[origin.decode()] = {
                        "verdict": one.verdict,
                        "status": one.status,
                        "fetched_ms": one.fetched_ms,
                        "expires_ms": one.expires_ms,
                        "moved_to": one.moved_to or None,
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
                found.extend(packing.names(flat[::2]))
                if len(flat) == 2 * PAGE_OF_SITES:
                    last = int(flat[-1])
                    equals = flat[1::2].count(flat[-1]) + (skipped if last == low else 0)
                    waiting.append((shard, last, high, equals))
            for page in _chunks(found, PAGE_OF_SITES):
                yield list(page)

    async def enter(self, scores: Mapping[str, int]) -> None:
        """Put sites into the index that are in it already, unless the store has lost that."""
        shards: dict[int, dict[str, int]] = defaultdict(dict)
        for site, score in scores.items():
            shards[score >> 40][site] = score
        await self._trip([self._index(shard, sites) for shard, sites in shards.items()])

    # --- content --------------------------------------------------------------------------------------------

    async def content(self, digest: bytes) -> records.ContentRef | None:
        """Where content of this digest (SHA-1, or SHA-1 and what sets it apart) was first fetched, if remembered."""
        (packed,) = await self._trip([("HGET", self._keys.content(digest), digest)])
        return packing.content(packed)

    async def remember_content(self, digest: bytes, where: records.ContentRef) -> None:
        """The first to say so stays."""
        await self._trip([("HSETNX", self._keys.content(digest), digest, packing.packed(where))])

    # --- the index ------------------------------------------------------------------------------------------

    async def site_count(self) -> int:
        return sum(await self._trip([("ZCARD", self._keys.index(shard)) for shard in range(keys.INDEX_SHARDS)]))

    # --- nodes ----------------------------------------------------------------------------------------------

    async def inbox(self, node: str, *, at_most: int) -> list[str]:
        """The oldest hints in a node's inbox: sites that went from idle to pending. They stay until `empty_inbox`."""
        (sites,) = await self._trip([("LRANGE", self._keys.inbox(node), 0, at_most - 1)])
        # One name for each hint, whatever it is: they are removed by their number.
        return [site.decode(errors="replace") for site in sites]

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

    # --- scopes and pauses ----------------------------------------------------------------------------------

    async def scope_version(self) -> int:
        """How many batches of seeds' rules there are; they are never taken away."""
        (count,) = await self._trip([("HLEN", self._keys.scopes())])
        return int(count)

    async def scopes(self, *, known: Collection[bytes] = ()) -> dict[bytes, tuple[scope.SeedRule, ...] | None]:
        """Every batch of rules by its name, as they were written; None for those that are known already."""
        (names,) = await self._trip([("HKEYS", self._keys.scopes())])
        found: dict[bytes, tuple[scope.SeedRule, ...] | None] = dict.fromkeys(names)
        for part in _chunks([name for name in names if name not in known], SCOPES_PER_TRIP):
            (batches,) = await self._trip([("HMGET", self._keys.scopes(), *part)])
            found |= {name: packing.seed_rules(one) for name, one in zip(part, batches, strict=True)}
        return found

    async def add_scopes(self, rules: Sequence[scope.SeedRule]) -> int:
        """Write one batch of rules, named by what is in it, so that a repeat adds none; the version it makes."""
        batch = packing.packed_rules(rules)
        name = hashlib.sha256(batch).digest()[:16]
        key = self._keys.scopes()
        _, count = await self._send([("HSET", key, name, batch), ("HLEN", key)], lasting=True)
        return int(count)

    async def pauses(self, *, newer_than: int | None = None) -> records.Pauses | None:
        """What is paused; None if that is what it was at this version."""
        key = self._keys.paused()
        (version,) = await self._trip([("HGET", key, PAUSE_VERSION)])  # before the names: they are then no older
        if newer_than is not None and int(version or 0) == newer_than:
            return None
        (names,) = await self._trip([("HKEYS", key)])
        return records.Pauses(
            version=int(version or 0), sites=frozenset(packing.names(names)) - frozenset((PAUSE_VERSION,))
        )

    async def pause(self, sites: Sequence[str]) -> int:
        """Start nothing new on these sites, `*` for all; the version that says so."""
        now_ms = await self.ping()
        key = self._keys.paused()
        told = [part for site in sites for part in (site, now_ms)]
        answers = await self._send([("HSET", key, *told), ("HINCRBY", key, PAUSE_VERSION, 1)], lasting=True)
        return int(answers[-1])

    async def resume(self, sites: Sequence[str]) -> int:
        """Undo `pause` for these names; sites that are paused by name stay so when `*` goes."""
        key = self._keys.paused()
        answers = await self._send([("HDEL", key, *sites), ("HINCRBY", key, PAUSE_VERSION, 1)], lasting=True)
        return int(answers[-1])

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

        `lasting`: if strict, answered once they last, and `before` with them.
        """
        script = SCRIPTS[name]
        before = before if self._strict else ()
        evalsha = "EVALSHA_RO" if name in READING else "EVALSHA"  # the same, and open to those who may only read
        commands = [(evalsha, script.sha, 1, self._keys.site(site), *asked) for site, asked in calls]
        answers = await self._send(commands, lasting=lasting, before=before)
        missed = [at for at, answer in enumerate(answers) if stores.missing_script(answer)]
        if missed:
            await self._store.load(script.text, [self._keys.site(calls[at][0]) for at in missed])
            again = await self._send([commands[at] for at in missed], lasting=lasting, before=before)
            for at, answer in zip(missed, again, strict=True):
                if stores.missing_script(answer):
                    raise errors.StoreUnavailable(f"redis: the store does not keep {name}.lua")
                answers[at] = answer
        return [
            errors.DamagedSite(f"{site}: {answer}") if stores.damaged(answer) else answer
            for (site, _), answer in zip(calls, answers, strict=True)
        ]

    async def _trip(self, commands: Sequence[Command]) -> list[Any]:
        """Of keys that are no site's: what is wrong with them is wrong with the store."""
        try:
            return await self._send(commands, lasting=False)
        except errors.DamagedSite as error:
            raise errors.StoreUnavailable(f"a key of the cluster is not crawlring's: {error}") from error

    async def _send(self, commands: Sequence[Command], *, lasting: bool, before: Sequence[Command] = ()) -> list[Any]:
        """Send all, then read all answers: a round trip for each part, and a disk's one wait where they must last."""
        answers: list[Any] = []
        for part in _chunks(commands, SEALED_PER_TRIP if lasting and self._strict else CALLS_PER_TRIP):
            said = stores.checked(await self._store.send([*before, *part], sealed=lasting))
            answers.extend(said[len(before) :])
        return answers


def _sound(answer: Any) -> Any:
    """The answer of one script, if it could read its site."""
    if isinstance(answer, errors.DamagedSite):
        raise answer
    return answer


def _chunks(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (whole[at : at + size] for at in range(0, len(whole), size))
