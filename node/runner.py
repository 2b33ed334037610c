"""Carries out what `ownership` decides: starts visits, ends them, and writes the handoff log; `claiming` does the rest.

One per node, on its event loop. State changes happen in `ownership`, between awaits; what waits is here.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec
import tenacity

from node import chronicle, claiming, disk, fetch, guard, ownership, schedule, steering, turn, visit
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
)

RETRY_MIN_S, RETRY_MAX_S = 0.1, 2.0  # between tries of a store that is away
WATCH_S = 0.05  # how soon lost authority ends transfers in flight
GAINED_S = 300.0  # since a view gave a site: so long a takeover may take a node that has all hands full
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
            held_max=settings.node.sites_held_max,
        )
        self.claiming = claiming.Claiming(settings, self, owned=self.owned, store=store, session=session, counts=counts)
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
        self._abandoned: dict[str, float] = {}
        self._cut: dict[asyncio.Task[None], float] = {}
        self._parked: set[str] = set()
        """Sites that are paused and have something to do: looked at again when what is paused changes."""
        self._work = asyncio.Event()
        """Something was queued for a worker other than the one that starts visits."""
        self._free = asyncio.Event()
        """A visit may be started: one has ended, or a site has something to do."""
        self._group: asyncio.TaskGroup | None = None
        self.disk = disk.Disk(settings.node.out, counts=counts, over=lambda: self.over, on_back=self._free.set)

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
                    held = self.owned.sites.get(effect.site)
                    gained = held is not None and held.gained_s > clock.boot_s() - GAINED_S
                    self.due.put(effect.site, effect.at_s, priority=effect.priority, gained=gained)
                    self._free.set()
                    continue  # nearly all: one a visit
                case ownership.Claim():
                    self.claiming.claim(effect.sites)
                case ownership.ReadArcs():
                    self.claiming.read(effect)
                case ownership.Abandon():
                    until_s = clock.boot_s() + self.settings.membership.stop_s
                    self._abandoned.update(dict.fromkeys(effect.sites, until_s))
                case ownership.Acknowledge() | ownership.Stopped():
                    self._tell(effect)
                case ownership.Released():
                    self.due.drop(effect.sites)
                    self._parked.difference_update(effect.sites)
                    self.claiming.forget(effect.sites)
                case ownership.Moved():
                    self.chronicle.moved(effect)
                    self._counts.moves.labels(effect.settled_by).inc()
            self.wake()

    def wake(self) -> None:
        """Whoever waits in `worked` looks again."""
        self._work.set()

    def _tell(self, effect: ownership.Acknowledge | ownership.Stopped) -> None:
        """The session waits for these."""
        if isinstance(effect, ownership.Acknowledge):
            self._session().feed(agreement.Applied(effect.epoch))
        else:
            self._session().feed(agreement.Stopped(effect.incarnation))

    # -- workers

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for worker in self.claiming.workers():
                group.create_task(worker())
            group.create_task(self._write_log_forever())
            group.create_task(self._watch_forever())
            group.create_task(self._dispatch_forever())

    async def _write_log_forever(self) -> None:
        while not self.over:
            if self.chronicle.waiting:
                await self.answered(lambda: self.chronicle.write(self.store))
            else:
                await self.worked(1.0)

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
            self.claiming.try_damaged(now_s)
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
            await _set(self._free, wait_s)
            self._free.clear()

    def _may_start(self) -> bool:
        heard = self.steering
        if self.trouble is not None or self.disk.lost:
            return False
        return heard.heard and not heard.all_paused and self._session().authority()

    async def worked(self, timeout_s: float = 0.25) -> None:
        """Wait until something was queued, at most so long."""
        if await _set(self._work, timeout_s):
            await asyncio.sleep(0)  # every waiter must see it before it is cleared
            self._work.clear()

    # -- visits

    def _start(self, site: str, now_s: float) -> None:
        if self.steering.paused(site):
            self._parked.add(site)
            self.owned.holding.put_by(site)
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
            self.claiming.bench(held, error)
        except errors.StoreUnavailable as error:
            self.lose_store(error)
        except asyncio.CancelledError:
            if held.phase is not ownership.Phase.LEAVING:
                raise
        finally:
            self.visits.pop(held.site, None)
            self._abandoned.pop(held.site, None)
            self._free.set()
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

    async def persist(self, now: turn.Turn, change: records.Commit) -> records.Committed:
        """Commit; while the store is away, again, as long as the site may still be committed by us."""
        held = now.held
        held.n += 1
        began_s = clock.boot_s()
        answer = await self.answered(
            lambda: self.store.commit(
                held.site,
                self.me,
                held.tenure,
                held.n,
                _aged(change, clock.boot_s() - began_s),
                offers=now.offers,
                remember=now.remember,
                owner_of=self.owned.owner_of,
                pages_max=self.settings.limits.pages_per_site_max,
            )
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
            self.wake()
            self._counts.takeover_seconds.observe(max(0.0, answer.start_boot_s - held.gained_s))

    def note_epoch(self, view: records.View, epoch: int) -> None:
        """Our proposal became the view."""
        self.chronicle.agreed(self.owned.placement, view, epoch, boot_s=clock.boot_s())
        self.wake()

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
        self._free.set()

    # -- the store

    async def answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store, again and again while it is away and the session goes on; a cancellation may be lost."""
        try:
            answer = await ask()  # the usual case by itself: a retrying object costs as much as the trip
        except errors.StoreUnavailable as error:
            self.lose_store(error)
            if self.over:
                raise
            answer = await self._asked_again(ask)
        self.find_store()
        return answer

    async def _asked_again(self, ask: Callable[[], Awaitable[T]]) -> T:
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
            self._free.set()

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


async def _set(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait until it is set, at most so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    return event.is_set()


def _aged(change: records.Commit, waited_s: float) -> records.Commit:
    """The same change told later: the request is longer ago; the due is not shortened, which errs on the safe side."""
    if change.fetched_ms_ago is None or waited_s < 0.001:
        return change
    return msgspec.structs.replace(change, fetched_ms_ago=change.fetched_ms_ago + round(waited_s * 1000))
