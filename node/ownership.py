"""Which sites this node may visit, and when: the owner's half of the protocol as a state machine.

Pure: no clock, socket or store. Events carry the boot time at which they happened; effects say what to do. The rules
are numbered as in ARCHITECTURE.md, "Ownership".

A site of ours is gained with the first of an unbroken run of views in which this incarnation owns it (rule 4). It is
claimed in the store when every earlier incarnation is past that view, or VL + G after the view was seen (rule 6),
and visited a full delay after the claim.

Of the sites that are ours at most `held_max` are held in memory; the others stay in the store, unclaimed or claimed
(rule 10). One that rests, all of it committed, with nothing to do for now or with its share of visits done, makes room
for another. Taken up again it is gained like any other: claimed under the newest epoch, which changes nothing where
that is its tenure still, and visited a full delay after the answer. Its last request was over before it was let go, and
its commits go on from the store's running number. Of the last that went `holding` remembers name and due: a store that
crashes may forget what lengthened a delay, or where a site stands in the index, a moment before it was let go (P1, P2).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from node import holding
from node.effects import Abandon, Acknowledge, Claim, Effect, Moved, ReadArcs, Ready, Released, Stopped
from node.holding import Held, Phase
from shared import agreement, errors, records, ring
from shared.placement import Placement

HELD_MAX: Final = 100_000  # as in config.Node.sites_held_max
DYING_PER_TICK: Final = 2_000  # lost records are given back to the machine in portions: 100,000 at once take a while

# With the states and effects that every caller of this module handles.
__all__ = [
    "Abandon",
    "Acknowledge",
    "Claim",
    "Effect",
    "Era",
    "Held",
    "Moved",
    "Ownership",
    "Phase",
    "ReadArcs",
    "Ready",
    "Released",
    "Stopped",
]


@dataclass(slots=True)
class Era:
    """One view as far as it matters to gains: since when it is known, and whether its earlier owners are past."""

    placement: Placement
    mine: bool
    seen_s: float
    cleared_s: float | None = None
    how: Mapping[str, records.Settled] = field(default_factory=dict)


class Ownership:
    """The sites of one node; every method applies one event and returns the effects, in order."""

    def __init__(
        self,
        me: str,
        *,
        silence_s: float,
        delay_min_s: float,
        held_max: int = HELD_MAX,
        share_visits: int = holding.SHARE_VISITS,
        slack: float = agreement.SLACK,
    ) -> None:
        self.me = me
        self.holding = holding.Holding(held_max, share_visits=share_visits)
        self.sites = self.holding.sites
        self.eras: list[Era] = []
        self.incarnation = 0
        self.applied = 0
        self._silence_s = silence_s
        self._delay_min_s = delay_min_s
        self._slack = slack
        self._now_s = 0.0  # of the last event that carried a time
        self._since = 0  # the first epoch of this incarnation
        self._made_room = False  # in this incarnation: a claim may take up again what was held before
        self._leaving: dict[str, Held] = {}
        self._dying: list[Held] = []
        self._fates: dict[str, str] = {}
        self._stopping: int | None = None
        self._waiting: dict[int, dict[str, None]] = {}  # epoch of the view that gave them -> sites
        self._claiming: set[str] = set()
        self._visiting: dict[str, Held] = {}

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
        """Held sites that are not claimed yet."""
        return len(self._claiming) + sum(len(group) for group in self._waiting.values())

    def phases(self) -> dict[str, int]:
        """How many held sites stand where."""
        claiming, visiting = len(self._claiming), len(self._visiting)
        waiting = self.unclaimed() - claiming
        resting = len(self.sites) - waiting - claiming - visiting
        return {Phase.WAITING: waiting, Phase.CLAIMING: claiming, Phase.RESTING: resting, Phase.VISITING: visiting}

    def waiting(self) -> list[str]:
        """Sites that an earlier owner may still act on."""
        return [site for group in self._waiting.values() for site in group]

    # -- events

    def adopted(self, now_s: float, change: agreement.Adopt) -> list[Effect]:
        """Views were agreed: stop what they take, look for what they give (rule 4)."""
        self._now_s = now_s
        effects: list[Effect] = []
        if not change.whole or change.incarnation != self.incarnation:
            effects += self._lose_all()
            self.eras.clear()
            if change.incarnation != self.incarnation:
                self._since, self._made_room = change.views[0][0], False
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
        self.holding.moved()
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
        self._now_s = now_s
        self.holding.give_back(self._dying[-DYING_PER_TICK:])
        del self._dying[-DYING_PER_TICK:]
        ripe = [era for era in self.eras if era.cleared_s is None and now_s >= era.seen_s + self._silence_s]
        for era in ripe:
            era.cleared_s = now_s
        return self._claim_cleared() if ripe else []

    def found(self, sites: Iterable[str]) -> list[Effect]:
        """These sites exist, or have something new to do; those that there is no room for are found again later."""
        claims: list[str] = []
        fresh: list[tuple[str, Era]] = []
        for site in dict.fromkeys(sites):
            held = self.sites.get(site)
            if held is None:
                era = self.gained_in(site)
                if era is not None:
                    fresh.append((site, era))
            elif held.phase is Phase.RESTING:
                self._ask(held)
                claims.append(site)
            else:
                held.stale = True
        effects = self._hold(fresh, claims) if fresh else []
        return [*effects, Claim(tuple(claims))] if claims else effects

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
            self._claiming.discard(site)
            self._waiting.setdefault(self.eras[-1].placement.epoch, {})[site] = None
            return []
        self._now_s = now_s
        self._claiming.discard(site)
        fresh = held.tenure == 0
        # A refresh never takes the number back: the store may have forgotten commits that we remember.
        held.tenure, held.phase, held.n = epoch, Phase.RESTING, record.n if fresh else max(held.n, record.n)
        effects: list[Effect] = []
        if fresh:
            held.ready_s = max(self._first_contact(now_s, record), self.holding.due_s(site))
            if self._came(record):
                effects.append(self._moved(held, record))
            self.holding.took(record)
        else:
            held.ready_s = max(held.ready_s, now_s + record.due_in_s * self._slack)
        self.holding.learn(held, record)
        if held.stale:
            # Something was queued while the answer was on its way.
            held.stale = False
            self._ask(held)
            return [*effects, Claim((site,))]
        return effects + self._rest(now_s, held)

    def start(self, now_s: float, site: str) -> Held | None:
        """Begin a visit if the site is ours, at rest, due and has something to do."""
        held = self.sites.get(site)
        if held is None or held.phase is not Phase.RESTING or now_s < held.ready_s or not held.record:
            return None
        if not held.record.head:
            return None
        held.phase = Phase.VISITING
        held.visits += 1
        self._visiting[site] = held
        self.holding.busy(site)
        return held

    def finished(self, now_s: float, held: Held, answer: records.Committed | None) -> list[Effect]:
        """A visit ended, its rest already in `ready_s`; `answer` is None where nothing was committed."""
        if held.phase is Phase.LEAVING:
            if self._leaving.get(held.site) is held:
                del self._leaving[held.site]
            return self._acknowledge()
        self._now_s = now_s
        self._visiting.pop(held.site, None)
        held.phase = Phase.RESTING
        if answer is None:
            self._ask(held)
            return [Claim((held.site,))]
        self.holding.learn(held, answer.record)
        held.n = max(held.n, answer.record.n)
        # The larger of our own and the record's: a late commit of an earlier tenure may have lengthened it.
        held.ready_s = max(held.ready_s, now_s + answer.record.due_in_s * self._slack)
        if held.stale:
            held.stale = False
            self._ask(held)
            return [Claim((held.site,))]
        return self._rest(now_s, held)

    def fenced(self, held: Held) -> list[Effect]:
        """A newer tenure owns the site: let it go; the next view says whose it is."""
        if held.phase is Phase.LEAVING:
            self._leaving.pop(held.site, None)
            return self._acknowledge()
        self._visiting.pop(held.site, None)
        self.holding.drop(held.site)
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
        circle = after.placement.ring
        lost: list[str] = []
        for arc in ring.moved_arcs(before.placement.ring, circle):
            if arc.source == self.me:
                lost += self.holding.cut(*circle.closed(arc))
        placed = {**before.placement.view.overrides, **after.placement.view.overrides}.keys() & self.sites.keys()
        return self._left(self.holding.lose(self._overridden(lost, placed, after) if placed else lost))

    def _overridden(self, cut: list[str], placed: set[str], after: Era) -> list[str]:
        """Overrides win over the arcs: what is lost of those cut out of the circle, and of the sites placed by hand."""
        lost = dict.fromkeys(cut)
        for site in sorted(placed):
            ours = after.placement.owner(site) == self.me
            if ours and site in lost:
                del lost[site]
                self.holding.put_in(site)
            elif not ours and site not in lost:
                lost[site] = None
                self.holding.take_out(site)
        return list(lost)

    def _lose_all(self) -> list[Effect]:
        return self._left(self.holding.lose_all())

    def _left(self, lost: list[Held]) -> list[Effect]:
        """What is on is to end, the rest is forgotten."""
        if not lost:
            return []
        self._dying += lost
        sites = [held.site for held in lost]
        if self._claiming:
            self._claiming.difference_update(sites)
        for group in self._waiting.values():
            for site in group.keys() & sites:
                del group[site]
        busy = [held for site in sorted(self._visiting) if (held := self._visiting[site]).site not in self.sites]
        for held in busy:
            del self._visiting[held.site]
            held.phase = Phase.LEAVING
            self._leaving[held.site] = held
        effects: list[Effect] = [Abandon(tuple(held.site for held in busy))] if busy else []
        return [*effects, Released(tuple(sites))]

    def _hold(self, fresh: list[tuple[str, Era]], claims: list[str]) -> list[Effect]:
        """Take these into memory, as many as there is room for; those that may be claimed are added to `claims`."""
        gone = self.holding.make_room(len(fresh), self._now_s)
        room = max(0, self.holding.held_max - len(self.sites))
        if room < len(fresh):
            self.holding.refused(site for site, _ in fresh[room:])
        taken = []
        for site, era in fresh[:room]:
            if era.cleared_s is None:
                taken.append(Held(site, Phase.WAITING))
                self._waiting.setdefault(era.placement.epoch, {})[site] = None
            else:
                taken.append(Held(site, Phase.CLAIMING))
                self._claiming.add(site)
                claims.append(site)
        self.holding.add(taken, self.eras[-1].placement.ring.algorithm)
        if not gone:
            return []
        self._made_room = True
        return [Released(tuple(held.site for held in gone))]

    def _ask(self, held: Held) -> None:
        """An answer of the store is awaited."""
        held.phase = Phase.CLAIMING
        self._claiming.add(held.site)
        self.holding.busy(held.site)

    def _rest(self, now_s: float, held: Held) -> list[Effect]:
        assert held.record is not None
        self.holding.rests(held, now_s, max(held.record.delay_s, self._delay_min_s) * self._slack)
        return self._next(now_s, held)

    def _prune(self) -> None:
        """Views before the last one whose earlier owners are past change nothing any more."""
        cleared = [at for at, era in enumerate(self.eras) if era.cleared_s is not None]
        if cleared:
            del self.eras[: cleared[-1]]

    def _claim_cleared(self) -> list[Effect]:
        """Claim every waiting site whose gain is cleared; those whose gain is not stay."""
        # Whoever is past a view is past every one before it, so what is cleared are the first of them.
        cleared = max((era.placement.epoch for era in self.eras if era.cleared_s is not None), default=0)
        ripe: dict[str, None] = {}
        for epoch in [epoch for epoch in sorted(self._waiting) if epoch <= cleared]:
            ripe |= self._waiting.pop(epoch)
        return self._claim(ripe)

    def _claim(self, ripe: Iterable[str]) -> list[Effect]:
        """These waited long enough."""
        for site in ripe:
            self.sites[site].phase = Phase.CLAIMING
        self._claiming.update(ripe)
        claims = tuple(ripe)
        return [Claim(claims)] if claims else []

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

    def _came(self, record: records.SiteRecord) -> bool:
        """Did this claim bring the site from another tenure than one of this incarnation?"""
        if record.owner is None:
            return False
        if not self._made_room:
            return True
        # Taken up again: under a newer view than its last stay, or under the same, where its due is not the claim's.
        again = record.owner == self.me and record.owner_epoch >= self._since
        return not again and record.n == 0 and record.due_in_s > 0

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
        return after.placement.ring.arcs_of(me)
    return [arc for arc in ring.moved_arcs(before.placement.ring, after.placement.ring) if arc.target == me]
