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
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from typing import Any, Literal, Self, TypeVar

from shared import board, durability, errors, keys, packing, records, slots, stores

OFFERS_PER_CALL = 500  # so that one script is short, and splits at most three buckets of a site's seen set
URLS_PER_BREATH = 500  # packed in one go: some milliseconds
RANGES_PER_TRIP = 16  # of the site index, each answering with at most a page
PAGE_OF_SITES = 1_000
UNTOLD_PER_CALL = 10_000
UNTOLD_MAX = 100_000  # hints owed beyond it are dropped: owners read their arcs again
ROBOTS_PER_TRIP = 16  # robots answers read at once: each may hold 500 KiB

Command = durability.Command
Durability = Literal["default", "strict"]
T = TypeVar("T")


class Script:
    """One atomic step."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


PARTS = {"offer": ("site", "take"), "commit": ("site", "take")}


def _script(name: str) -> Script:
    """The first line of its file (flags for the store), what it shares with others, the rest of its file."""
    folder = resources.files("shared") / "lua"
    first, _, rest = (folder / f"{name}.lua").read_text().partition("\n")
    shared = "\n".join((folder / f"{part}.lua").read_text() for part in PARTS.get(name, ("site",)))
    return Script(f"{first}\n{shared}\n{rest}")


SCRIPTS = {name: _script(name) for name in ("offer", "claim", "try", "commit", "look")}
READING = {"look"}


class Frontier(board.Board):
    """The connections to the store of one cluster."""

    def __init__(self, store: stores.Store, cluster: str, *, call_s: float, strict: bool, together: bool) -> None:
        super().__init__(store, cluster, call_s=call_s, strict=strict)
        self._together = together
        """One script may touch the keys of several sites: one server, which shares its slots with no other."""
        self.newest_tenure = 0
        """The latest epoch for which a claim was refused."""
        self._untold: dict[str, None] = {}
        """Sites that went from idle to pending, or may have, and whose owner has no hint yet."""

    @classmethod
    async def open(cls, url: str, cluster: str, *, call_s: float = 2.0, durability: Durability = "default") -> Self:
        """Connect, and load the scripts. `redis-cluster://` and `rediss-cluster://` name servers of a Redis Cluster.

        Raises StoreUnavailable, or ConfigError for a URL of no store and for a store that cannot be `strict`.
        """
        where = stores.place(url, call_s=call_s, strict=durability == "strict")
        names = keys.RedisKeys(cluster)
        store = slots.Clustered(where, names) if where.clustered else stores.Single(where, mark=names.mark())
        try:
            await store.everywhere(("TIME",))  # who is not let in is told so by a short command, not by a long one
            for script in SCRIPTS.values():
                await store.load(script.text, ())
            if durability == "strict":
                await store.seal()
            together = not where.clustered and await _alone(store)
        except errors.CrawlError:
            await store.close()
            raise
        return cls(store, cluster, call_s=call_s, strict=durability == "strict", together=together)

    def servers(self) -> list[tuple[str, int]]:
        """(host, port) of the store's servers that its URL may not name."""
        return [(one.host, one.port) for one in self._store.addresses()]

    async def close(self) -> None:
        await self._store.close()

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
        """`accepted`, `known`, `changed`, `full` or `damaged` (nothing was taken) for each offer, in their order.

        P2: the index first, since an empty site in it is harmless and a queue out of it would be lost; then
        the queues; the owner's hint last, since it is never the only trace. On one server a script does all three.
        """
        calls = packing.shares(offers, most=OFFERS_PER_CALL, together=self._together)
        index = [] if self._together else self._index((offer.site, offer.score) for offer in offers)
        await self._trip(index)
        asked, packed = [], 0
        for call in calls:
            asked.append((call[0].site, packing.offer(self._asked(call, offers, owner_of, pages_max))))
            packed += sum(len(share.at) for share in call)
            if packed >= URLS_PER_BREATH:
                packed = 0
                await asyncio.sleep(0)  # the loop's other work: thousands of URLs take a tenth of a second
        try:
            # Strict: the index again, with the queues. A store that crashed since may have lost it.
            answers = await self._run("offer", asked, lasting=True, before=index)
        except (errors.StoreUnavailable, asyncio.CancelledError):
            # It may have run all the same, and the repeat would find nothing new to tell.
            self._untold.update((offer.site, None) for offer in offers)
            raise
        verdicts = [""] * len(offers)
        for call, answer in zip(calls, answers, strict=True):
            damaged = isinstance(answer, errors.DamagedSite)
            untold, letters = ((), packing.DAMAGED * sum(len(one.at) for one in call)) if damaged else answer
            self._note(verdicts, call, letters, untold)
        # The URLs are safe; who is not told now is told later, or finds them by reading its arcs again.
        with suppress(errors.StoreUnavailable):
            await self.tell_owners(owner_of)
        return verdicts

    def _asked(
        self,
        call: Sequence[packing.Share],
        offers: Sequence[records.Offer],
        owner_of: Callable[[str], str | None],
        pages_max: int,
    ) -> dict[str, Any]:
        """The document of offer.lua."""
        return packing.offers(
            call,
            offers,
            stem=self._keys.stem,
            pages_max=pages_max,
            owner_of=owner_of if self._together else None,
        )

    def _note(self, verdicts: list[str], call: Sequence[packing.Share], letters: bytes, untold: Sequence[int]) -> None:
        """Put what take.lua answered in the places of the offers; who has no hint yet is told later."""
        places = itertools.chain.from_iterable(share.at for share in call)
        for at, verdict in zip(places, packing.verdicts(letters), strict=True):
            verdicts[at] = verdict
        self._untold.update((call[number - 1].site, None) for number in untold)

    async def tell_owners(self, owner_of: Callable[[str], str | None]) -> None:
        """Leave the hints that are owed; while no view says who the owner is, they stay owed."""
        if not self._untold:
            return
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

    async def commit(
        self,
        site: str,
        node: str,
        tenure: int,
        n: int,
        change: records.Commit,
        *,
        offers: Sequence[records.Offer] = (),
        remember: tuple[bytes, records.ContentRef] | None = None,
        owner_of: Callable[[str], str | None] = lambda _site: None,
        pages_max: int = 0,
    ) -> records.Committed:
        """Apply all of one visit, once however often it is asked for.

        What is set aside must be in `done` too. Raises StaleEpoch when a newer tenure holds the site; a
        longer due or delay has been kept even so.

        `offers`: what the page named, taken as by `offer` before the commit is applied, or neither is (P2); on one
        server in the same step. They are taken even if the commit is fenced: what a page names is true whoever holds
        its site. `remember`: digest and place of its content, as by `remember_content`.
        """
        told = offers if self._together else ()
        before: list[str] = []
        if len(told) != len(offers) or len(told) > OFFERS_PER_CALL:
            told = told[-OFFERS_PER_CALL:]
            before = await self.offer(offers[: len(offers) - len(told)], owner_of=owner_of, pages_max=pages_max)
        if remember is not None and not self._together:
            await self.remember_content(*remember)
        # One call takes them all: there are no more than fit.
        calls = packing.shares(told, most=OFFERS_PER_CALL, together=True)
        document = self._asked(calls[0], told, owner_of, pages_max) if calls else None
        content = (self._keys.content(remember[0]), *remember) if remember and self._together else None
        asked = packing.commit(site, node, tenure=tenure, n=n, change=change, offers=document, remember=content)
        try:
            answer = _sound(*await self._run("commit", [(site, asked)], lasting=True))
        except (errors.StoreUnavailable, errors.DamagedSite, asyncio.CancelledError):
            self._untold.update((offer.site, None) for offer in told)
            raise
        fenced = answer[0] == b"FENCED"
        verdicts = [""] * len(told)
        if calls:
            letters, untold = answer[1:] if fenced else answer[6:]
            self._note(verdicts, calls[0], letters, untold)
            with suppress(errors.StoreUnavailable):
                await self.tell_owners(owner_of)
        if fenced:
            raise errors.StaleEpoch(f"{site}: tenure {tenure} of {node} is over")
        return records.Committed(
            record=packing.site_record(site, answer),
            repeated=answer[0] == b"REPEATED",
            forgotten=answer[0] == b"FORGOTTEN",
            verdicts=(*before, *verdicts),
        )

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
        for part in board.chunks(sorted(origins), ROBOTS_PER_TRIP):
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
            for page in board.chunks(found, PAGE_OF_SITES):
                yield list(page)

    async def enter(self, scores: Mapping[str, int]) -> None:
        """Put sites into the index that are in it already, unless the store has lost that."""
        await self._trip(self._index(scores.items()))

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

    # --- the wire -------------------------------------------------------------------------------------------

    def _index(self, scores: Iterable[tuple[str, int]]) -> list[Command]:
        shards: dict[int, dict[str, int]] = defaultdict(dict)
        for site, score in scores:
            shards[score >> 40][site] = score
        return [
            ("ZADD", self._keys.index(shard), *(part for site, score in sites.items() for part in (score, site)))
            for shard, sites in shards.items()
        ]

    def _range(self, shard: int, low: int, high: int, skipped: int) -> Command:
        key = self._keys.index(shard)
        return ("ZRANGEBYSCORE", key, low, high, "WITHSCORES", "LIMIT", skipped, PAGE_OF_SITES)

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
        for answer in answers:
            if stores.damaged(answer) and "SHARED " in str(answer):
                raise errors.StoreUnavailable(f"a key of the cluster is not crawlring's: {answer}")
        return [
            errors.DamagedSite(f"{site}: {answer}") if stores.damaged(answer) else answer
            for (site, _), answer in zip(calls, answers, strict=True)
        ]


async def _alone(store: stores.Store) -> bool:
    """Is it one server whose scripts may touch keys of any slot? Whoever may not ask does not write."""
    try:
        ((info,),) = await store.everywhere(("INFO", "cluster"))
    except errors.StoreForbidden:
        return False
    return not info.get("cluster_enabled")


def _sound(answer: Any) -> Any:
    """The answer of one script, if it could read its site."""
    if isinstance(answer, errors.DamagedSite):
        raise answer
    return answer
