"""Carries out what `ownership` decides: reads arcs, claims, starts visits, ends them, and writes the handoff log.

One per node, on its event loop. State changes happen in `ownership`, between awaits; what waits is here.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
import tenacity

from node import chronicle, disk, fetch, guard, ownership, schedule, steering, turn, visit
from shared import (
    agreement,
    clock,
    config,
    errors,
    frontier,
    logs,
    membership,
    metrics,
    records,
    ring,
)

CLAIMS_PER_CALL = 128  # one trip to the store; a gain of many sites is claimed in such batches
STRICT_CLAIMS_PER_CALL = 1_024  # where each trip waits for a disk
RETRY_MIN_S, RETRY_MAX_S = 0.1, 2.0  # between tries of a store that is away
INBOX_S = 0.2  # between looks into the inbox
INBOX_MAX = 1_000
READ_AGAIN_S = 60.0  # every owner reads its own arcs again: whatever hint was lost, no site stays unknown
ASK_IDLE_S = 300.0  # idle sites are read again too, more seldom: they are many, and a hint is seldom lost
WATCH_S = 0.05  # how soon lost authority ends transfers in flight
DAMAGED_S = 300.0  # a site that cannot be read is asked for again: an operator may have mended it
CUT_S = 0.5  # from the reset of a transfer to the end of its visit

T = TypeVar("T")
log = logs.get("node.runner")


class Runner:
    """The sites of one node, at work."""

    def __init__(
        self,
        settings: config.Config,
        *,
        store: frontier.Frontier,
        fetcher: fetch.Fetcher,
        session: Callable[[], membership.Session],
        counts: metrics.Metrics,
    ) -> None:
        self.settings = settings
        self.me = settings.node.id
        self.owned = ownership.Ownership(
            self.me,
            silence_s=membership.settings_of(settings.membership).silence_s,
            delay_min_s=settings.politeness.delay_min_s,
        )
        self.due = schedule.Schedule()
        self.steering = steering.Steering(settings)
        self.chronicle = chronicle.Chronicle(self.me, store_ms_at=self.store_ms_at)
        self.visits: dict[str, asyncio.Task[None]] = {}
        self.trouble: str | None = None
        """Why the store does not answer; None while it does."""
        self.pages = self.requests = self.fenced = self.late = 0
        self.smallest_gap_ratio: float | None = None
        self.over = False
        """The session has ended. Looked at by every worker, because a cancellation can be lost: on Python 3.11
        `asyncio.wait_for`, which redis-py writes through, drops one that comes together with its answer."""
        self.tools: turn.Tools | None = None
        self.store_offset_ms = 0.0
        """From our wall clock to the store's, as last measured."""
        self._store_at_boot_ms = time.time() * 1000 - clock.boot_s() * 1000
        """The store's TIME less our boot time; our wall clock's until it has been measured."""
        self._round_trip_ms = 0.0
        self.store = store
        self._fetcher = fetcher
        self._session = session
        self._counts = counts
        self._claims: deque[tuple[str, ...]] = deque()
        self._idle: deque[str] = deque()
        self._arcs: deque[ownership.ReadArcs] = deque()
        self._abandoned: dict[str, float] = {}
        self._cut: dict[asyncio.Task[None], float] = {}
        self._damaged: dict[str, float] = {}
        """Sites that the store's bytes do not let us work on, and when they are claimed again."""
        self._parked: set[str] = set()
        """Sites that are paused and have something to do: looked at again when what is paused changes."""
        self._work = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self.disk = disk.Disk(settings.node.out, counts=counts, over=lambda: self.over, on_back=self._work.set)

    # -- what the session says

    def on_effect(self, effect: membership.OwnerEffect, now_s: float) -> None:
        match effect:
            case agreement.Adopt():
                self.apply(self.owned.adopted(now_s, effect))
                now_held = self.owned.placement
                assert now_held is not None
                logs.bind(epoch=now_held.epoch)
                self._counts.epoch.set(now_held.epoch)
                log.info(
                    "view.adopted",
                    members=sorted(now_held.view.members),
                    whole=effect.whole,
                    sites=len(self.owned.sites),
                )
            case agreement.Settle():
                log.info("view.settled", how=dict(effect.how))
                self.apply(self.owned.settled(now_s, effect))
            case agreement.StopAll():
                log.warning("incarnation.over", reason=effect.reason, visits=len(self.visits))
                self.apply(self.owned.stop(effect.incarnation))

    def apply(self, effects: Iterable[ownership.Effect]) -> None:
        """Run effects; those that wait are queued for their worker."""
        for effect in effects:
            match effect:
                case ownership.Ready():
                    self.due.put(effect.site, effect.at_s, priority=effect.priority)
                case ownership.Claim():
                    self._claims.append(effect.sites)
                case ownership.ReadArcs():
                    self._arcs.append(effect)
                case ownership.Abandon():
                    until_s = clock.boot_s() + self.settings.membership.stop_s
                    self._abandoned.update(dict.fromkeys(effect.sites, until_s))
                case ownership.Acknowledge():
                    self._session().feed(agreement.Applied(effect.epoch))
                case ownership.Stopped():
                    self._session().feed(agreement.Stopped(effect.incarnation))
                case ownership.Moved():
                    self.chronicle.moved(effect)
                    self._counts.moves.labels(effect.settled_by).inc()
        self._work.set()

    # -- workers

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._claim_forever())
            group.create_task(self._read_arcs_forever())
            group.create_task(self._read_inbox_forever())
            group.create_task(self._write_log_forever())
            group.create_task(self._watch_forever())
            group.create_task(self._dispatch_forever())

    async def _claim_forever(self) -> None:
        """One claim at a time, so that answers come in the order of the questions; idle sites when nothing presses."""
        while not self.over:
            if self._claims:
                sites = self._next_claims()
                await self.answered(lambda: self._claim(sites))  # noqa: B023 - awaited here
            elif self._idle:
                idle = [self._idle.popleft() for _ in range(min(len(self._idle), CLAIMS_PER_CALL))]
                self.apply(self.owned.found(site for site in idle if site in self.owned.sites))
            else:
                await self._worked()

    def _next_claims(self) -> list[str]:
        """What waits, in its order, as much as one trip takes."""
        room = STRICT_CLAIMS_PER_CALL if self.settings.durability == "strict" else CLAIMS_PER_CALL
        sites: list[str] = []
        while self._claims and len(sites) < room:
            waiting = self._claims.popleft()
            taken = room - len(sites)
            sites += waiting[:taken]
            if waiting[taken:]:
                self._claims.appendleft(waiting[taken:])
        return list(dict.fromkeys(sites))

    async def _claim(self, sites: Sequence[str]) -> None:
        """Ask for those sites of which an answer is still awaited, each under the epoch that it has by now."""
        groups: dict[tuple[int, bool], list[ownership.Held]] = {}
        for site in sites:
            epoch = self.owned.claim_epoch(site)
            if epoch is not None:
                held = self.owned.sites[site]
                groups.setdefault((epoch, held.tenure == epoch), []).append(held)
        for (epoch, again), group in groups.items():
            names = [held.site for held in group]
            delay_s = self.settings.politeness.delay_min_s
            answers = await self.store.claim(names, self.me, epoch, delay_s=delay_s, again=again)
            now_s = clock.boot_s()
            if None in answers:
                self._session().feed(agreement.Outdated(self.store.newest_tenure))
            for held, record in zip(group, answers, strict=True):
                if isinstance(record, errors.DamagedSite):
                    self._bench(held, record)
                elif self.owned.sites.get(held.site) is held:
                    self.apply(self.owned.claimed(now_s, held.site, epoch, record))

    def _bench(self, held: ownership.Held, error: errors.DamagedSite) -> None:
        """Leave a site alone that cannot be read or written; it stays unclaimed, which is seen from outside."""
        log.error("site.damaged", site=held.site, tenure=held.tenure, error=str(error), again_s=DAMAGED_S)
        self._counts.damaged.inc()
        self._damaged[held.site] = clock.boot_s() + DAMAGED_S

    async def _read_arcs_forever(self) -> None:
        """Gained arcs at once, all of ours now and then."""
        next_s, idle_s = clock.boot_s() + READ_AGAIN_S, clock.boot_s() + ASK_IDLE_S
        while not self.over:
            held = self.owned.placement
            if self._arcs:
                asked = self._arcs.popleft()
                arcs, overridden = asked.arcs, asked.overridden
            elif held is not None and clock.boot_s() >= next_s:
                arcs = tuple(arc for arc in held.ring.arcs() if arc.target == self.me)
                overridden = tuple(site for site, node in held.view.overrides.items() if node == self.me)
                next_s = clock.boot_s() + READ_AGAIN_S
                if clock.boot_s() >= idle_s:
                    idle_s = clock.boot_s() + ASK_IDLE_S
                    self._idle.extend(self.owned.idle())
            else:
                await self._worked(1.0)
                continue
            if held is None:
                continue
            await self.answered(lambda: self._read_arcs(held.ring, arcs, overridden))  # noqa: B023 - awaited here

    async def _read_arcs(self, circle: ring.Ring, arcs: tuple[ring.Arc, ...], overridden: tuple[str, ...]) -> None:
        self._find(site for site in overridden if site not in self.owned.sites)
        async for page in self.store.sites_in(ring.index_ranges(circle, arcs)):
            self._find(site for site in page if site not in self.owned.sites)

    def _find(self, sites: Iterable[str]) -> None:
        self.apply(self.owned.found([site for site in sites if self.owned.owner_of(site) == self.me]))

    async def _read_inbox_forever(self) -> None:
        while not self.over:
            await asyncio.sleep(INBOX_S)
            if self.owned.placement is None:
                continue
            sites = await self.answered(lambda: self.store.inbox(self.me, at_most=INBOX_MAX))
            if not sites or self.owned.placement is None:
                continue
            by_owner: dict[str, list[str]] = {}
            for site in dict.fromkeys(sites):
                by_owner.setdefault(self.owned.owner_of(site) or self.me, []).append(site)
            self.apply(self.owned.found(by_owner.pop(self.me, ())))
            for owner, others in by_owner.items():
                await self.answered(lambda owner=owner, others=others: self.store.wake(owner, others))  # type: ignore[misc]
            await self.answered(lambda sites=sites: self.store.empty_inbox(self.me, len(sites)))  # type: ignore[misc]

    async def _write_log_forever(self) -> None:
        while not self.over:
            if self.chronicle.waiting:
                await self.answered(lambda: self.chronicle.write(self.store))
            else:
                await self._worked(1.0)

    async def _watch_forever(self) -> None:
        """Tick the waits; end transfers when authority ends, and those on lost sites when their time is up."""
        had_authority = False
        while not self.over:
            await asyncio.sleep(WATCH_S)
            now_s = clock.boot_s()
            self.apply(self.owned.ticked(now_s))
            authority = self._session().transferring()
            if had_authority and not authority and self.visits:
                log.warning("authority.lost", reset=self._fetcher.abort())
            had_authority = authority
            for site in [site for site, until_s in self._abandoned.items() if now_s >= until_s]:
                del self._abandoned[site]
                self._fetcher.abort(site)
                if site in self.visits:
                    # What is cut short is still logged and committed (P3); only a visit that hangs elsewhere is not.
                    self._cut[self.visits[site]] = now_s + CUT_S
            for site in [site for site, again_s in self._damaged.items() if now_s >= again_s]:
                del self._damaged[site]
                self.apply([ownership.Claim((site,))])
            for task in [task for task, at_s in self._cut.items() if now_s >= at_s or task.done()]:
                if task.done():
                    del self._cut[task]
                else:
                    task.cancel()  # at every look until it has ended: one cancellation can be lost

    async def _dispatch_forever(self) -> None:
        """Start visits of what is due while there is authority, a place and a store."""
        while not self.over:
            now_s = clock.boot_s()
            while len(self.visits) < self.settings.node.concurrency and self._may_start():
                site = self.due.take(now_s)
                if site is None:
                    break
                self._start(site, now_s)
            next_s = self.due.next_s()
            wait_s = 0.25 if next_s is None else min(max(next_s - clock.boot_s(), 0.001), 0.25)
            if self.steering.all_paused:
                wait_s = 0.25
            elif len(self.visits) >= self.settings.node.concurrency or not self._may_start():
                wait_s = 0.05
            await self._worked(wait_s)

    def _may_start(self) -> bool:
        heard = self.steering
        if self.trouble is not None or self.disk.lost:
            return False
        return heard.heard and not heard.all_paused and self._session().authority()

    async def _worked(self, timeout_s: float = 0.25) -> None:
        """Wait until something was queued, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._work.wait()
        except TimeoutError:
            return
        # Every waiter must see it before it is cleared.
        await asyncio.sleep(0)
        self._work.clear()

    # -- visits

    def _start(self, site: str, now_s: float) -> None:
        if self.steering.paused(site):
            self._parked.add(site)
            return
        held = self.owned.sites.get(site)
        if held is not None and held.phase is ownership.Phase.RESTING and held.record and not held.record.head:
            self.apply(self.owned.found([site]))  # the first of `later` has fallen due
            return
        if site in self.visits:
            # The visit of an earlier tenure is still ending.
            self.due.put(site, now_s + WATCH_S, priority=0)
            return
        held = self.owned.start(now_s, site)
        if held is None:
            held = self.owned.sites.get(site)
            if held is not None and held.phase is ownership.Phase.RESTING and held.ready_s > now_s:
                self.due.put(site, held.ready_s, priority=0)
            return
        assert self._group is not None
        self.visits[site] = self._group.create_task(self._visit(held), name=f"visit {site}")

    async def _visit(self, held: ownership.Held) -> None:
        assert self.tools is not None
        now = turn.Turn(held, self._permit(held))
        answer: records.Committed | None = None
        fenced = damaged = False
        try:
            answer = await visit.visit(now, self.tools)
        except errors.StaleEpoch:
            fenced = True
        except errors.DamagedSite as error:
            damaged = True
            self._bench(held, error)
        except errors.StoreUnavailable as error:
            self.lose_store(error)
        except asyncio.CancelledError:
            if held.phase is not ownership.Phase.LEAVING:
                raise
        finally:
            self.visits.pop(held.site, None)
            self._abandoned.pop(held.site, None)
        if fenced:
            self.fenced += 1
            self._counts.fenced.inc()
            log.warning("commit.fenced", site=held.site, tenure=held.tenure)
            self.apply(self.owned.fenced(held))
            return
        effects = self.owned.finished(clock.boot_s(), held, answer)
        # A visit that cannot be committed is not repeated at the site's pace: its claim waits.
        self.apply(one for one in effects if not (damaged and isinstance(one, ownership.Claim)))

    def _permit(self, held: ownership.Held) -> guard.Permit:
        def may_send() -> str | None:
            if self.owned.sites.get(held.site) is not held or not self.owned.owns(held.site, held.tenure):
                return "not_owner"
            return None if self._session().transferring() else "no_authority"

        def may_start() -> str | None:
            reason = may_send()
            if reason is None and not self._session().authority():
                reason = "no_authority"
            if reason is None and (not self.steering.heard or self.steering.paused(held.site)):
                reason = "paused"  # since this visit began: between two hops of a robots.txt minutes may pass
            return reason or (None if clock.boot_s() >= held.ready_s else "not_due")

        return guard.Permit(held.site, may_start, may_send, clock.boot_s, self._on_late)

    def _on_late(self, late_s: float) -> None:
        self.late += 1
        self._counts.late_contacts.inc()
        log.error("contact.late", late_s=round(late_s, 3))

    async def persist(self, held: ownership.Held, change: records.Commit) -> records.Committed:
        """Commit; while the store is away, again, as long as the site may still be committed by us."""
        held.n += 1
        began_s = clock.boot_s()
        answer = await self.answered(
            lambda: self.store.commit(held.site, self.me, held.tenure, held.n, _aged(change, clock.boot_s() - began_s))
        )
        self.pages += change.visits
        self._counts.pages.inc(change.visits)
        if answer.forgotten:
            log.warning("store.forgot", site=held.site, n=held.n)
        return answer

    def on_request(self, held: ownership.Held, answer: fetch.Answer, delay_ms: int) -> None:
        """Count a request that went out, and close the site's handoff entry with its first one."""
        self.requests += 1
        self._counts.body_bytes.inc(answer.body_bytes)
        self._counts.fetch_seconds.observe(answer.end_boot_s - answer.start_boot_s)
        if held.last_start_s is not None and delay_ms > 0:
            ratio = (answer.start_boot_s - held.last_start_s) * 1000 / delay_ms
            self._counts.gap_ratio.observe(ratio)
            self.smallest_gap_ratio = min(ratio, self.smallest_gap_ratio or ratio)
        held.last_start_s = answer.start_boot_s
        if held.moved:
            held.moved = False
            self.chronicle.first_request(held, answer)
            self._counts.takeover_seconds.observe(max(0.0, answer.start_boot_s - held.gained_s))

    def note_epoch(self, view: records.View, epoch: int) -> None:
        """Our proposal became the view."""
        self.chronicle.agreed(self.owned.placement, view, epoch, boot_s=clock.boot_s())
        self._work.set()

    # -- the operator

    async def steer(self) -> None:
        """Hear what the operator says; sites that are paused no more have their turn again. Raises StoreUnavailable."""
        if not await self.steering.read(self.store):
            return
        now_s = clock.boot_s()
        for site in [site for site in self._parked if not self.steering.paused(site)]:
            self._parked.discard(site)
            held = self.owned.sites.get(site)
            if held is not None and held.phase is ownership.Phase.RESTING:
                head = held.record.head if held.record else ()
                self.due.put(site, max(now_s, held.ready_s), priority=head[0].priority if head else -1)
        self._work.set()

    # -- the store

    async def answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store, again and again while it is away and the session goes on; a cancellation may be lost."""
        async for attempt in tenacity.AsyncRetrying(
            wait=tenacity.wait_exponential_jitter(multiplier=RETRY_MIN_S, max=RETRY_MAX_S, jitter=RETRY_MIN_S),
            retry=tenacity.retry_if_exception_type(errors.StoreUnavailable),
            stop=lambda _: self.over,
            reraise=True,
        ):
            with attempt:
                try:
                    answer = await ask()
                except errors.StoreUnavailable as error:
                    self.lose_store(error)
                    raise
        self.find_store()
        return answer

    def lose_store(self, error: errors.StoreUnavailable) -> None:
        if self.trouble is None:
            log.warning("store.lost", error=str(error))
            self._counts.store_errors.labels("redis").inc()
        self.trouble = str(error)
        self.steering.forget()
        if self.tools is not None:
            self.tools.offered.clear()  # it may come back without its last second

    def find_store(self) -> None:
        if self.trouble is not None:
            log.info("store.back")
            self.trouble = None
            self._work.set()

    async def measure_clock(self) -> None:
        """The store's TIME against ours: what a log needs to compare moments of two machines."""
        before_s = clock.boot_s()
        store_ms = await self.store.ping()
        after_s, wall_ms = clock.boot_s(), time.time() * 1000
        self._round_trip_ms = (after_s - before_s) * 1000
        self._store_at_boot_ms = store_ms - (before_s + after_s) / 2 * 1000
        self.store_offset_ms = store_ms + self._round_trip_ms / 2 - wall_ms
        self.find_store()

    def store_ms_at(self, boot_s: float) -> int:
        """The store's TIME at a moment of our boot time; a step of our wall clock changes nothing of it."""
        return round(self._store_at_boot_ms + boot_s * 1000)

    def clock_error_ms(self) -> int:
        """How far this machine's wall clock may be from the store's."""
        return round(abs(self.store_offset_ms) + self._round_trip_ms / 2 + 1)


def _aged(change: records.Commit, waited_s: float) -> records.Commit:
    """The same change told later: the request is longer ago; the due is not shortened, which errs on the safe side."""
    if change.fetched_ms_ago is None or waited_s < 0.001:
        return change
    return msgspec.structs.replace(change, fetched_ms_ago=change.fetched_ms_ago + round(waited_s * 1000))
