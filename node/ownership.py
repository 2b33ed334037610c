"""Which sites this node may visit, and when: the owner's half of the protocol as a state machine.

Pure: no clock, socket or store. Events carry the boot time at which they happened; effects say what to do. The rules
are numbered as in ARCHITECTURE.md, "Ownership".

A site of ours is gained with the first of an unbroken run of views in which this incarnation owns it (rule 4). It is
claimed in the store when every earlier incarnation is past that view, or VL + G after the view was seen (rule 6),
and visited a full delay after the claim.
"""

import bisect
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared import agreement, errors, records, ring
from shared.placement import Placement


class Phase(enum.StrEnum):
    """Where one site stands."""

    WAITING = "waiting"  # gained; an earlier owner may still act
    CLAIMING = "claiming"  # asked of the store, not answered yet
    RESTING = "resting"  # ours; nothing is on
    VISITING = "visiting"  # a visit is on
    LEAVING = "leaving"  # lost while a visit was on


@dataclass(slots=True)
class Held:
    """One site of this node. Times are boot seconds."""

    site: str
    phase: Phase
    tenure: int = 0
    record: records.SiteRecord | None = None
    ready_s: float = float("inf")
    """No request before this moment."""
    n: int = 0
    """Running number of the next commit."""
    stale: bool = False
    """The store may hold more than `record` says: ask again."""
    moved: bool = False
    """The site came from another tenure, and this one has made no request yet."""
    handoff: records.Handoff | None = None
    """The entry of that move in the handoff log; its second one comes with the first request."""
    gained_s: float = 0.0
    """When the view that gave the site was first seen."""
    last_start_s: float | None = None
    """Of this tenure's last request."""
    crawl_delays: dict[str, float | None] = field(default_factory=dict)
    """Seconds asked for by each origin, as far as this tenure knows."""
    following: dict[str, tuple[str, int]] = field(default_factory=dict)
    """robots.txt -> where its redirects had led, and how many there were, when the next was put off."""


@dataclass(slots=True)
class Era:
    """One view as far as it matters to gains: since when it is known, and whether its earlier owners are past."""

    placement: Placement
    mine: bool
    seen_s: float
    cleared_s: float | None = None
    how: Mapping[str, records.Settled] = field(default_factory=dict)


# --- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadArcs:
    """Read the index of these arcs and tell which sites there are (`found`)."""

    arcs: tuple[ring.Arc, ...]
    overridden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim (or read again) these sites in the store, each under its `claim_epoch`; answer each with `claimed`."""

    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The site has something to do at `at_s`."""

    site: str
    at_s: float
    priority: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """These sites are lost with a visit on: let it end within `stop_s`, then reset it."""

    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Everything lost up to this epoch is stopped and committed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing of the lost incarnation is on any more."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A site came from another tenure: one entry of the handoff log."""

    held: Held
    cause: records.Cause
    settled_by: records.Settled
    record: records.SiteRecord


Effect = ReadArcs | Claim | Ready | Abandon | Acknowledge | Stopped | Moved


class Ownership:
    """The sites of one node; every method applies one event and returns the effects, in order."""

    def __init__(self, me: str, *, silence_s: float, delay_min_s: float, slack: float = agreement.SLACK) -> None:
        self.me = me
        self.sites: dict[str, Held] = {}
        self.eras: list[Era] = []
        self.incarnation = 0
        self.applied = 0
        self._silence_s = silence_s
        self._delay_min_s = delay_min_s
        self._slack = slack
        self._ordered: list[tuple[int, str]] = []  # (position, site) of `sites`: what an arc takes is one slice
        self._leaving: dict[str, Held] = {}
        self._fates: dict[str, str] = {}
        self._stopping: int | None = None
        self._waiting: set[str] = set()

    # -- questions

    @property
    def placement(self) -> Placement | None:
        """Who owns what in the newest view; None before the first."""
        return self.eras[-1].placement if self.eras else None

    def owner_of(self, site: str) -> str | None:
        return self.eras[-1].placement.owner(site) if self.eras else None

    def owns(self, site: str, tenure: int) -> bool:
        """The guard's first question: is this tenure of the site ours in the view we hold?"""
        held = self.sites.get(site)
        return held is not None and held.tenure == tenure and held.phase in (Phase.RESTING, Phase.VISITING)

    def gained_in(self, site: str) -> Era | None:
        """The first view of the unbroken run in which this incarnation owns the site; None if it does not own it."""
        first = None
        for era in reversed(self.eras):
            if not era.mine or era.placement.owner(site) != self.me:
                break
            first = era
        return first

    def idle(self) -> list[str]:
        """Sites at rest with nothing to do, as far as this node knows."""
        return [
            held.site
            for held in self.sites.values()
            if held.phase is Phase.RESTING and held.record is not None and not held.record.head
        ]

    def unclaimed(self) -> int:
        return sum(1 for held in self.sites.values() if held.phase in (Phase.WAITING, Phase.CLAIMING))

    # -- events

    def adopted(self, now_s: float, change: agreement.Adopt) -> list[Effect]:
        """Views were agreed: stop what they take, look for what they give (rule 4)."""
        effects: list[Effect] = []
        if not change.whole or change.incarnation != self.incarnation:
            effects += self._lose_all()
            self.eras.clear()
            self.incarnation, self.applied = change.incarnation, 0
        gained: list[ring.Arc] = []
        overridden: set[str] = set()
        for epoch, view in change.views:
            before = self.eras[-1] if self.eras else None
            era = self._new_era(epoch, view, now_s, before)
            effects += self._lose(before, era)
            gained += _gained(self.me, before, era)
            overridden |= {site for site, node in view.overrides.items() if node == self.me}
            overridden |= set(before.placement.view.overrides) if before else set()
            self.eras.append(era)
        self._prune()
        if self.eras[-1].mine and (gained or overridden):
            effects.append(ReadArcs(tuple(gained), tuple(sorted(overridden))))
        return effects + self._claim_cleared() + self._acknowledge()

    def settled(self, now_s: float, settle: agreement.Settle) -> list[Effect]:
        """Everybody earlier is past this epoch, and so past every earlier one (rule 6)."""
        for era in self.eras:
            if era.placement.epoch <= settle.epoch and era.cleared_s is None:
                era.cleared_s = now_s
                era.how = settle.how
        return self._claim_cleared()

    def ticked(self, now_s: float) -> list[Effect]:
        """VL + G after a view was seen, nobody earlier can act, whoever is silent (rule 6, second half)."""
        ripe = [era for era in self.eras if era.cleared_s is None and now_s >= era.seen_s + self._silence_s]
        for era in ripe:
            era.cleared_s = now_s
        return self._claim_cleared() if ripe else []

    def found(self, sites: Iterable[str]) -> list[Effect]:
        """These sites exist, or have something new to do."""
        claims: list[str] = []
        fresh: list[Held] = []
        for site in dict.fromkeys(sites):
            held = self.sites.get(site)
            if held is None:
                era = self.gained_in(site)
                if era is not None:
                    fresh.append(Held(site, Phase.WAITING if era.cleared_s is None else Phase.CLAIMING))
            elif held.phase is Phase.RESTING:
                held.phase = Phase.CLAIMING
                claims.append(site)
            else:
                held.stale = True
        self._hold(fresh)
        claims += [held.site for held in fresh if held.phase is Phase.CLAIMING]
        return [Claim(tuple(claims))] if claims else []

    def claim_epoch(self, site: str) -> int | None:
        """Under which epoch to claim now; None where no answer is awaited any more."""
        held = self.sites.get(site)
        if held is None or held.phase is not Phase.CLAIMING:
            return None
        return held.tenure or self.eras[-1].placement.epoch

    def claimed(self, now_s: float, site: str, epoch: int, record: records.SiteRecord | None) -> list[Effect]:
        """The store answered a claim; None: a newer tenure holds the site."""
        held = self.sites.get(site)
        if held is None or held.phase is not Phase.CLAIMING:
            return []
        if held.tenure and held.tenure != epoch:
            raise errors.InvalidTransition(f"claim of {site} under {epoch}, held since {held.tenure}")
        if record is None:
            # Somebody newer: our view is old, and the next one will say so. Until then it waits as if gained again.
            held.phase, held.tenure = Phase.WAITING, 0
            self._waiting.add(site)
            return []
        fresh = held.tenure == 0
        # A refresh never takes the number back: the store may have forgotten commits that we remember.
        held.tenure, held.phase, held.n = epoch, Phase.RESTING, record.n if fresh else max(held.n, record.n)
        effects: list[Effect] = []
        if fresh:
            held.ready_s = self._first_contact(now_s, record)
            if record.owner is not None:
                effects.append(self._moved(held, record))
        else:
            held.ready_s = max(held.ready_s, now_s + record.due_in_s * self._slack)
        held.record = record
        if held.stale:
            # Something was queued while the answer was on its way.
            held.stale, held.phase = False, Phase.CLAIMING
            return [*effects, Claim((site,))]
        return effects + self._next(now_s, held)

    def start(self, now_s: float, site: str) -> Held | None:
        """Begin a visit if the site is ours, at rest, due and has something to do."""
        held = self.sites.get(site)
        if held is None or held.phase is not Phase.RESTING or now_s < held.ready_s or not held.record:
            return None
        if not held.record.head:
            return None
        held.phase = Phase.VISITING
        return held

    def finished(self, now_s: float, held: Held, answer: records.Committed | None) -> list[Effect]:
        """A visit ended, its rest already in `ready_s`; `answer` is None where nothing was committed."""
        if held.phase is Phase.LEAVING:
            if self._leaving.get(held.site) is held:
                del self._leaving[held.site]
            return self._acknowledge()
        held.phase = Phase.RESTING
        if answer is None:
            held.phase = Phase.CLAIMING
            return [Claim((held.site,))]
        held.record, held.n = answer.record, max(held.n, answer.record.n)
        # The larger of our own and the record's: a late commit of an earlier tenure may have lengthened it.
        held.ready_s = max(held.ready_s, now_s + answer.record.due_in_s * self._slack)
        if held.stale:
            held.stale, held.phase = False, Phase.CLAIMING
            return [Claim((held.site,))]
        return self._next(now_s, held)

    def fenced(self, held: Held) -> list[Effect]:
        """A newer tenure owns the site: let it go; the next view says whose it is."""
        if held.phase is Phase.LEAVING:
            self._leaving.pop(held.site, None)
            return self._acknowledge()
        self._drop(held.site)
        # If our view gives it to us still, it is gained anew: claimed again, and visited a full delay later.
        return self.found([held.site])

    def stop(self, incarnation: int) -> list[Effect]:
        """This incarnation is over (rule 3): everything is lost, whatever the views say."""
        effects = self._lose_all()
        self.eras.clear()
        self.incarnation = self.applied = 0
        self._stopping = incarnation
        return effects + self._acknowledge()

    # -- inside

    def _new_era(self, epoch: int, view: records.View, now_s: float, before: Era | None) -> Era:
        placement = Placement.of(view, epoch, before.placement if before else None)
        if before:
            for node, member in before.placement.view.members.items():
                if node not in view.members:
                    self._fates[node] = "drained" if member.weight == 0 else "lease_lost"
        for node in view.members:
            self._fates.pop(node, None)
        return Era(placement, placement.incarnation(self.me) == self.incarnation, now_s)

    def _lose(self, before: Era | None, after: Era) -> list[Effect]:
        if before is None or not before.mine:
            return []
        if not after.mine:
            return self._lose_all()
        taken = [
            site
            for arc in ring.moved_arcs(before.placement.ring, after.placement.ring)
            if arc.source == self.me
            for site in self._within(arc)
        ]
        taken += {**before.placement.view.overrides, **after.placement.view.overrides}
        lost = dict.fromkeys(site for site in taken if site in self.sites and after.placement.owner(site) != self.me)
        return self._let_go(list(lost))

    def _lose_all(self) -> list[Effect]:
        return self._let_go(list(self.sites))

    def _let_go(self, sites: list[str]) -> list[Effect]:
        busy = []
        for site in sites:
            held = self.sites[site]
            self._drop(site)
            if held.phase is Phase.VISITING:
                held.phase = Phase.LEAVING
                self._leaving[site] = held
                busy.append(site)
        return [Abandon(tuple(busy))] if busy else []

    def _hold(self, fresh: list[Held]) -> None:
        for held in fresh:
            self.sites[held.site] = held
            if held.phase is Phase.WAITING:
                self._waiting.add(held.site)
        if len(fresh) == 1:
            bisect.insort(self._ordered, (self._position(fresh[0].site), fresh[0].site))
        elif fresh:
            self._ordered += [(self._position(held.site), held.site) for held in fresh]
            self._ordered.sort()  # nearly sorted: cheaper than as many insertions

    def _drop(self, site: str) -> None:
        del self.sites[site]
        self._waiting.discard(site)
        at = bisect.bisect_left(self._ordered, (self._position(site), site))
        del self._ordered[at]

    def _position(self, site: str) -> int:
        circle = self.eras[-1].placement.ring
        return ring.position(circle.algorithm, site)

    def _within(self, arc: ring.Arc) -> list[str]:
        """Held sites of an arc: a superset by one point at either end, so the caller asks the owner."""
        low = bisect.bisect_left(self._ordered, (arc.start, ""))
        high = bisect.bisect_right(self._ordered, (arc.end + 1, ""))
        return [site for _, site in self._ordered[low:high]]

    def _prune(self) -> None:
        """Views before the last one whose earlier owners are past change nothing any more."""
        cleared = [at for at, era in enumerate(self.eras) if era.cleared_s is not None]
        if cleared:
            del self.eras[: cleared[-1]]

    def _claim_cleared(self) -> list[Effect]:
        """Claim every waiting site whose gain is cleared; those whose gain is not stay."""
        ripe = []
        for site in self._waiting:
            era = self.gained_in(site)
            if era is not None and era.cleared_s is not None:
                ripe.append(site)
        for site in ripe:
            self._waiting.discard(site)
            self.sites[site].phase = Phase.CLAIMING
        return [Claim(tuple(sorted(ripe)))] if ripe else []

    def _acknowledge(self) -> list[Effect]:
        if self._leaving:
            return []
        if self._stopping is not None:
            stopped, self._stopping = self._stopping, None
            return [Stopped(stopped)]
        epoch = self.eras[-1].placement.epoch if self.eras else 0
        if epoch <= self.applied:
            return []
        self.applied = epoch
        return [Acknowledge(epoch)]

    def _first_contact(self, now_s: float, record: records.SiteRecord) -> float:
        """Rule 6: a full delay after the claim, and whatever longer pause the record holds."""
        return now_s + max(record.delay_s, self._delay_min_s, record.due_in_s) * self._slack

    def _moved(self, held: Held, record: records.SiteRecord) -> Moved:
        era = self.gained_in(held.site)
        owner = record.owner or ""
        held.moved = True
        held.gained_s = era.seen_s if era is not None else 0.0
        settled_by = era.how.get(owner, "time") if era is not None else "time"
        return Moved(held, self._cause(held.site, owner), settled_by, record)

    def _cause(self, site: str, owner: str) -> records.Cause:
        view = self.eras[-1].placement.view
        if view.overrides.get(site) == self.me:
            return "override"
        if owner == self.me:
            return "restarted"
        member = view.members.get(owner)
        if member is not None:
            return "joined" if member.weight > 0 else "drained"
        return "drained" if self._fates.get(owner) == "drained" else "lease_lost"

    def _next(self, now_s: float, held: Held) -> list[Effect]:
        """When the site has something to do: its head when it is due, or the first of `later`."""
        record = held.record
        if record is None:
            return []
        if record.head:
            return [Ready(held.site, held.ready_s, record.head[0].priority)]
        if record.later_in_s is not None:
            return [Ready(held.site, max(held.ready_s, now_s + record.later_in_s), -1)]
        return []


def _gained(me: str, before: Era | None, after: Era) -> list[ring.Arc]:
    if not after.mine:
        return []
    if before is None or not before.mine:
        return [arc for arc in after.placement.ring.arcs() if arc.target == me]
    return [arc for arc in ring.moved_arcs(before.placement.ring, after.placement.ring) if arc.target == me]
