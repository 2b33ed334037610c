"""Finds and claims the sites of this node: gained arcs, the inbox, and rounds through all of its part of the index.

It asks the store and tells `ownership`, which decides what is taken into memory. There is one claim on its way at a
time, so that answers come in the order of the questions.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from node import holding, ownership
from shared import agreement, clock, config, errors, frontier, logs, membership, metrics, placement, ring

CLAIMS_PER_CALL = 128  # one trip to the store; a gain of many sites is claimed in such batches
STRICT_CLAIMS_PER_CALL = 1_024  # where each trip waits for a disk
INBOX_S = 0.2  # between looks into the inbox
INBOX_MAX = 1_000
READ_AGAIN_S = 60.0  # every owner reads its own arcs again: whatever hint was lost, no site stays unknown
ASK_IDLE_S = 300.0  # idle sites that are held are read again too, more seldom: they are many, a hint is seldom lost
ROUND_SITES_PER_S = 10_000  # where some outside have work, the next round begins sooner: as its reading is worth
LOOKS_PER_S = 1_000  # sites outside that a round takes up, once all were seen: most have nothing to do yet
CLAIMS_AHEAD = 4  # trips' worth of claims that may wait; beyond, what a hint woke would wait behind sites that sleep
ROOM_S = 0.1  # between looks for room where there is none: a site that has come to rest says nothing
RANGES_PER_READ = 16  # of the index; after each the round hears of a new view
DAMAGED_S = 300.0  # a site that cannot be read is asked for again: an operator may have mended it

T = TypeVar("T")
log = logs.get("node.claiming")


class Worker(Protocol):
    """What it needs of the node it works for."""

    over: bool

    def apply(self, effects: Iterable[ownership.Effect]) -> None: ...
    async def answered(self, ask: Callable[[], Awaitable[T]]) -> T: ...
    async def worked(self, timeout_s: float = ...) -> None: ...
    def wake(self) -> None: ...


class Claiming:
    """What waits to be read or claimed."""

    def __init__(
        self,
        settings: config.Config,
        worker: Worker,
        *,
        owned: ownership.Ownership,
        store: frontier.Frontier,
        session: Callable[[], membership.Session],
        counts: metrics.Metrics,
    ) -> None:
        self._settings, self._worker, self._owned, self._store = settings, worker, owned, store
        self._me = settings.node.id
        self._session = session
        self._counts = counts
        self._claims: deque[str] = deque()
        self._idle: deque[str] = deque()
        self._arcs: deque[ownership.ReadArcs] = deque()
        self._damaged: dict[str, float] = {}
        """Sites that the store's bytes do not let us work on, and when they are claimed again."""

    def claim(self, sites: Iterable[str]) -> None:
        """Claim these, or read them again, after what waits already."""
        self._claims.extend(sites)

    def read(self, asked: ownership.ReadArcs) -> None:
        """Look which sites there are in these arcs."""
        self._arcs.append(asked)

    def forget(self, sites: Iterable[str]) -> None:
        """They are held no more."""
        for site in sites:
            self._damaged.pop(site, None)

    def workers(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """To be run side by side until the session is over."""
        return [self._claim_forever, self._read_gains_forever, self._go_round_forever, self._read_inbox_forever]

    # -- sites that cannot be read

    def bench(self, held: ownership.Held, error: errors.DamagedSite) -> None:
        """Leave a site alone that cannot be read or written; it stays unclaimed, which is seen from outside."""
        log.error("site.damaged", site=held.site, tenure=held.tenure, error=str(error), again_s=DAMAGED_S)
        self._counts.damaged.inc()
        self._damaged[held.site] = clock.boot_s() + DAMAGED_S

    def try_damaged(self, now_s: float) -> None:
        """Those that were left alone for long enough are claimed again."""
        ripe = [site for site, again_s in self._damaged.items() if now_s >= again_s]
        for site in ripe:
            del self._damaged[site]
        self.claim(ripe)

    # -- claims

    async def _claim_forever(self) -> None:
        """Idle sites are asked for when nothing presses."""
        while not self._worker.over:
            if self._claims:
                sites = self._next_claims()
                await self._worker.answered(lambda: self._claim(sites))  # noqa: B023 - awaited here
                self._worker.wake()  # whoever waits for fewer claims
            elif self._idle:
                idle = [self._idle.popleft() for _ in range(min(len(self._idle), CLAIMS_PER_CALL))]
                self._worker.apply(self._owned.found(site for site in idle if site in self._owned.sites))
            else:
                await self._worker.worked()

    def _per_call(self) -> int:
        return STRICT_CLAIMS_PER_CALL if self._settings.durability == "strict" else CLAIMS_PER_CALL

    async def _claims_few(self) -> None:
        """Wait until few claims wait."""
        while len(self._claims) > CLAIMS_AHEAD * self._per_call() and not self._worker.over:
            await self._worker.worked()

    def _next_claims(self) -> list[str]:
        """What waits, in its order, as much as one trip takes."""
        return list(dict.fromkeys(self._claims.popleft() for _ in range(min(len(self._claims), self._per_call()))))

    async def _claim(self, sites: Sequence[str]) -> None:
        """Ask for those sites of which an answer is still awaited, each under the epoch that it has by now."""
        groups: dict[tuple[int, bool], list[ownership.Held]] = {}
        for site in sites:
            epoch = self._owned.claim_epoch(site)
            if epoch is not None:
                held = self._owned.sites[site]
                groups.setdefault((epoch, held.tenure == epoch), []).append(held)
        for (epoch, again), group in groups.items():
            names = [held.site for held in group]
            delay_s = self._settings.politeness.delay_min_s
            answers = await self._store.claim(names, self._me, epoch, delay_s=delay_s, again=again)
            now_s = clock.boot_s()
            if None in answers:
                self._session().feed(agreement.Outdated(self._store.newest_tenure))
            for held, record in zip(group, answers, strict=True):
                if isinstance(record, errors.DamagedSite):
                    self.bench(held, record)
                elif self._owned.sites.get(held.site) is held:
                    self._worker.apply(self._owned.claimed(now_s, held.site, epoch, record))

    # -- the index

    async def _read_gains_forever(self) -> None:
        """Gained arcs at once, as far as there is room; the rounds find the rest."""
        while not self._worker.over:
            if not self._arcs or self._owned.placement is None:
                await self._worker.worked(1.0)
                continue
            asked, circle = self._arcs.popleft(), self._owned.placement.ring
            await self._worker.answered(lambda: self._read_gains(circle, asked))  # noqa: B023 - awaited here

    async def _read_gains(self, circle: ring.Ring, asked: ownership.ReadArcs) -> None:
        self._find(asked.overridden)
        async for page in self._store.sites_in(ring.index_ranges(circle, asked.arcs)):
            self._find(page)
            await self._claims_few()
            if not self._owned.holding.room():
                self._owned.holding.refused()
                return

    def _find(self, sites: Iterable[str]) -> None:
        self._worker.apply(self._owned.found([site for site in sites if site not in self._owned.sites]))

    async def _go_round_forever(self) -> None:
        """All that is ours, now and then: a site that is not known, or not held, has its turn."""
        next_s, idle_s = clock.boot_s() + READ_AGAIN_S, clock.boot_s() + ASK_IDLE_S
        ended_s = 0.0
        while not self._worker.over:
            now_s = clock.boot_s()
            if self._owned.placement is None or now_s < min(next_s, self._hurry_s(ended_s)):
                await self._worker.worked(1.0)
                continue
            next_s = now_s + READ_AGAIN_S
            if now_s >= idle_s:
                idle_s = now_s + ASK_IDLE_S
                self._idle.extend(self._owned.idle())
            await self._go_round()
            ended_s = clock.boot_s()

    def _hurry_s(self, ended_s: float) -> float:
        """When to begin a round before its time: sites outside have work, and there is room."""
        held = self._owned.holding
        if not held.unlooked() or not held.room():
            return holding.NEVER
        return ended_s + 1.0 + held.counted / ROUND_SITES_PER_S

    async def _go_round(self) -> None:
        held = self._owned.holding
        first = not held.counted
        held.begin_round()
        async for part in self._parts():
            held.saw(await self._worker.answered(lambda: self._look(part, hurry=first)))  # noqa: B023 - awaited here
            if self._worker.over:
                return
        held.end_round()

    async def _parts(self) -> AsyncIterator[list[tuple[int, int, int]]]:
        """Ranges of the index that hold our sites, in order once around; from where it is on under a new view."""
        placed: placement.Placement | None = None
        waiting: deque[tuple[int, int, int]] = deque()
        reached = (-1, -1)
        while self._owned.placement is not None:
            if placed is not self._owned.placement:
                placed = self._owned.placement
                given = [site for site, node in placed.view.overrides.items() if node == self._me]
                waiting = deque(one for one in self._ranges(placed.ring, given) if (one[0], one[2]) > reached)
                self._find(given)
            if not waiting:
                return
            part = [waiting.popleft() for _ in range(min(len(waiting), RANGES_PER_READ))]
            reached = (part[-1][0], part[-1][2])
            yield part

    def _ranges(self, circle: ring.Ring, given: Iterable[str]) -> list[tuple[int, int, int]]:
        """Our arcs, and the places in others' arcs of the sites that overrides give us: nobody else counts those."""
        abroad = [site for site in given if circle.owner(site) != self._me]
        return sorted(ring.index_ranges(circle, circle.arcs_of(self._me)) + ring.index_places(circle, abroad))

    async def _look(self, part: Sequence[tuple[int, int, int]], *, hurry: bool) -> int:
        """Take what these ranges hold of ours; how many sites that is."""
        count = 0
        async for page in self._store.sites_in(part):
            ours = [site for site in page if self._owned.owner_of(site) == self._me]
            count += len(ours)
            await self._take([site for site in ours if site not in self._owned.sites], hurry=hurry)
        return count

    async def _take(self, sites: list[str], *, hurry: bool) -> None:
        """Have all of these taken into memory, when there is room."""
        while sites and not self._worker.over:
            await self._claims_few()
            room = self._owned.holding.room()
            if not room:
                self._owned.holding.refused()  # those inside that had their share go next
                await self._worker.worked(ROOM_S)
                continue
            some, sites = sites[:room], sites[room:]
            self._find(some)
            await asyncio.sleep(0 if hurry or not self._owned.holding.outside else len(some) / LOOKS_PER_S)

    # -- hints

    async def _read_inbox_forever(self) -> None:
        while not self._worker.over:
            await asyncio.sleep(INBOX_S)
            if self._owned.placement is None:
                continue
            sites = await self._worker.answered(lambda: self._store.inbox(self._me, at_most=INBOX_MAX))
            if not sites or self._owned.placement is None:
                continue
            by_owner: dict[str, list[str]] = {}
            for site in dict.fromkeys(sites):
                by_owner.setdefault(self._owned.owner_of(site) or self._me, []).append(site)
            self._worker.apply(self._owned.found(by_owner.pop(self._me, ())))
            for owner, others in by_owner.items():
                await self._worker.answered(lambda owner=owner, others=others: self._store.wake(owner, others))  # type: ignore[misc]
            await self._worker.answered(lambda sites=sites: self._store.empty_inbox(self._me, len(sites)))  # type: ignore[misc]
