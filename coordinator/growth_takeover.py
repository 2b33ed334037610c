"""One node's half of a membership event, by the project's own `ownership` and `schedule`, for `simulate growth`.

Pure. What a session of `growth_sessions` told its owner of sites is told to a real `Ownership` that holds real sites;
its claims are answered at the pace of the store, and the first request of each site that it gains is what is measured.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence

from coordinator import growth_sessions
from node import ownership, schedule
from shared import agreement, records

TRIP_S = 0.001  # to the store and back
WATCH_S = 0.05  # runner.WATCH_S
LIMIT_S = 120.0


class Witness:
    """One node with its sites, told what its session was told."""

    def __init__(
        self, event: growth_sessions.Event, *, node: str, settings: agreement.Settings, delay_s: float
    ) -> None:
        self.owned = ownership.Ownership(node, silence_s=settings.silence_s, delay_min_s=delay_s)
        self.due = schedule.Schedule()
        self.first_s: dict[str, float] = {}
        """Site -> its first request after the event, in seconds from the event's beginning."""
        self._event = event
        self._delay_s = delay_s
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._now_s = event.began_s
        self._claimed_s = 0.0
        self._before: set[str] = set()
        self._gained: set[str] | None = None
        """Known once the view that the event ends with is adopted."""

    def run(
        self,
        heard: Iterable[tuple[float, agreement.Adopt | agreement.Settle | agreement.StopAll]],
        *,
        sites: Sequence[str],
        claims_per_s: float,
    ) -> dict[str, float]:
        """First requests of those of `sites` that this node gains; it holds those that were its own before."""
        self._hold(sites)
        told = [(at_s, effect) for at_s, effect in heard if at_s > self._event.began_s]
        for at_s, effect in told:
            self._at(at_s, lambda effect=effect: self._tell(effect, sites, claims_per_s))  # type: ignore[misc]
        self._at(self._event.began_s, lambda: self._tick(claims_per_s))
        while self._queue and self._now_s < self._event.began_s + LIMIT_S:
            self._now_s, _, turn = heapq.heappop(self._queue)
            turn()
            if self._gained is not None and self._gained <= self.first_s.keys():
                break
        return {site: at_s for site, at_s in self.first_s.items() if site in (self._gained or ())}

    def _hold(self, sites: Sequence[str]) -> None:
        """As it stood before: every view settled, every site claimed long ago."""
        epoch, view = self._event.epochs[0], self._event.before
        mine = view.members.get(self.owned.me)
        if mine is None:
            return
        long_ago_s = self._event.began_s - 3_600
        self.owned.adopted(long_ago_s, agreement.Adopt(((epoch, view),), False, mine.incarnation))  # noqa: FBT003
        self.owned.settled(long_ago_s, agreement.Settle(epoch, {}))
        ours = [site for site in sites if self.owned.owner_of(site) == self.owned.me]
        self.owned.found(ours)
        for site in ours:
            self.owned.claimed(long_ago_s, site, epoch, record_of(site, None, self._delay_s))
        self._before = set(ours)

    def _tell(
        self,
        effect: agreement.Adopt | agreement.Settle | agreement.StopAll,
        sites: Sequence[str],
        claims_per_s: float,
    ) -> None:
        match effect:
            case agreement.Adopt():
                self._apply(self.owned.adopted(self._now_s, effect), claims_per_s)
                gained = [
                    site for site in sites if self.owned.owner_of(site) == self.owned.me and site not in self._before
                ]
                if effect.views[-1][0] >= self._event.epochs[1] and self._gained is None:
                    self._gained = set(gained)
                # The index of the gained arcs is read: one trip and its answer.
                self._at(self._now_s + TRIP_S, lambda: self._apply(self.owned.found(gained), claims_per_s))
            case agreement.Settle():
                self._apply(self.owned.settled(self._now_s, effect), claims_per_s)
            case agreement.StopAll():
                self._apply(self.owned.stop(effect.incarnation), claims_per_s)

    def _tick(self, claims_per_s: float) -> None:
        self._apply(self.owned.ticked(self._now_s), claims_per_s)
        while (site := self.due.take(self._now_s)) is not None:
            if self.owned.start(self._now_s, site) is not None:
                self.first_s.setdefault(site, self._now_s - self._event.began_s)
        self._at(self._now_s + WATCH_S, lambda: self._tick(claims_per_s))

    def _apply(self, effects: Iterable[ownership.Effect], claims_per_s: float) -> None:
        for effect in effects:
            match effect:
                case ownership.Ready():
                    self.due.put(effect.site, effect.at_s, priority=effect.priority)
                case ownership.Claim():
                    for site in effect.sites:
                        self._claimed_s = max(self._claimed_s, self._now_s + TRIP_S) + 1 / claims_per_s
                        self._at(self._claimed_s, lambda site=site: self._answer(site, claims_per_s))  # type: ignore[misc]
                case _:
                    pass

    def _answer(self, site: str, claims_per_s: float) -> None:
        epoch = self.owned.claim_epoch(site)
        if epoch is not None:
            record = record_of(site, self._event.node, self._delay_s)
            self._apply(self.owned.claimed(self._now_s, site, epoch, record), claims_per_s)

    def _at(self, at_s: float, turn: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (at_s, self._count, turn))


def record_of(site: str, owner: str | None, delay_s: float) -> records.SiteRecord:
    """A site with pages to fetch that is due."""
    return records.SiteRecord(
        site=site, owner=owner, owner_epoch=0, n=0, pending=1, later=0, later_in_s=None,
        head=(records.QueuedUrl(url=f"http://{site}/", priority=5),), due_in_s=0.0, due_ms=0, due_term="",
        delay_s=delay_s, delay_term="minimum", backoff=0, last_fetch_ms=None, pages=0, seen=1, validators=0, checks=0,
        changes=0, observed_s=0.0, answered_ms=0,
    )  # fmt: skip
