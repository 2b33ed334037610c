"""The sites that a node holds in memory: in ring order and counted, and which of them make room for others.

Pure. Times are boot seconds. A site of ours that is not held stays in the store, with all that is known of it. Of those
that went last name and due are remembered, since a store that crashes may have lost its last second.
"""

import bisect
import enum
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from shared import records, ring

SOON_S: Final = 60.0  # what has something to do within it is not let go: taking it up again costs a claim and a delay
SHARE_VISITS: Final = 20  # visits after which a site makes room for those outside: each stay costs a claim and a delay
LATELY_MAX: Final = 10_000  # that went last: more than a node lets go of, or finds no room for, in some seconds
LEAN_FROM: Final = 10_000  # from so many held sites on, one at rest keeps the first of its next URLs only
LEAN_HEAD: Final = 2  # so many: the next commit's answer brings the others
ONE_BY_ONE: Final = 16  # fewer new sites of a bucket are inserted, more are sorted in
BUCKET_BITS: Final = 8  # 256 stretches of the circle: an insertion moves one bucket's sites, not all

NEVER: Final = float("inf")


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
    ready_s: float = NEVER
    """No request before this moment."""
    n: int = 0
    """Running number of the next commit."""
    visits: int = 0
    """Since it was taken into memory."""
    stale: bool = False
    """The store may hold more than `record` says: ask again."""
    moved: bool = False
    """The site came from another tenure, and this one has made no request yet."""
    handoff: records.Handoff | None = None
    """The entry of that move in the handoff log; its second one comes with the first request."""
    gained_s: float = 0.0
    """When the view that gave the site was first seen; long ago for one that nobody had before."""
    last_start_s: float | None = None
    """Of this tenure's last request."""
    known_delays: dict[str, float | None] | None = None
    known_moves: dict[str, tuple[str, int]] | None = None

    @property
    def crawl_delays(self) -> dict[str, float | None]:
        """Seconds asked for by each origin, as far as this stay in memory knows; most sites never need any."""
        if self.known_delays is None:
            self.known_delays = {}
        return self.known_delays

    @property
    def following(self) -> dict[str, tuple[str, int]]:
        """robots.txt -> where its redirects had led, and how many there were, when the next was put off."""
        if self.known_moves is None:
            self.known_moves = {}
        return self.known_moves

    @property
    def may_go(self) -> bool:
        """At rest, and in the middle of nothing that only memory knows: it may be let go."""
        return self.phase is Phase.RESTING and not self.stale and not self.known_moves

    def wakes_s(self, now_s: float) -> float:
        """When it has something to do, by a record that was answered now; NEVER: not before somebody says so."""
        if self.record is None:
            return NEVER
        if self.record.head:
            return self.ready_s
        later_s = self.record.later_in_s
        return NEVER if later_s is None else max(self.ready_s, now_s + later_s)


class Holding:
    """All that are held, at most `held_max`."""

    def __init__(self, held_max: int, *, share_visits: int = SHARE_VISITS) -> None:
        self.sites: dict[str, Held] = {}
        self.held_max = held_max
        self.pending = self.later = 0
        """Sums over the records held."""
        self.outside = False
        """Sites of ours may be out of memory: some were let go, or found no room."""
        self.counted = 0
        """Sites of ours, by the last whole round through the index; 0 before one."""
        self._round_counted = 0
        self._round_whole = self._round_dull = False
        self._dull = False  # the last round found nothing to do outside, and nothing with work went out since
        self._share_visits = share_visits
        self._algorithm = ""
        self._buckets: dict[int, list[str]] = {}  # stretch of the circle -> its sites in ring order
        # May be let go, the longest so first -> when it has something to do. Not a dict: to find its first is to walk
        # over all that were first.
        self._spare: OrderedDict[str, float] = OrderedDict()
        self._lately: OrderedDict[str, float] = OrderedDict()  # went, or found no room, the last one last -> its due

    # -- which

    def add(self, fresh: list[Held], algorithm: str) -> None:
        """Hold these; none of them is held, and there is room."""
        self._algorithm = algorithm
        self.sites.update((held.site, held) for held in fresh)
        by_bucket: dict[int, list[str]] = {}
        for held in fresh:
            by_bucket.setdefault(self._bucket(self._position(held.site)), []).append(held.site)
        for number, more in by_bucket.items():
            bucket = self._buckets.setdefault(number, [])
            if len(more) < ONE_BY_ONE:
                for site in more:
                    bisect.insort(bucket, site, key=self._position)
            else:
                bucket += more
                bucket.sort(key=self._position)

    def drop(self, site: str) -> Held:
        """Hold it no longer."""
        self.take_out(site)
        (held,) = self.lose([site])
        self.give_back([held])
        return held

    def put_in(self, site: str) -> None:
        """Into the order of the circle."""
        position = self._position(site)
        bisect.insort(self._buckets.setdefault(self._bucket(position), []), site, key=self._position)

    def take_out(self, site: str) -> None:
        """Out of the order of the circle."""
        position = self._position(site)
        bucket = self._buckets[self._bucket(position)]
        at = bisect.bisect_left(bucket, position, key=self._position)
        while bucket[at] != site:  # 32 bits of a position may meet
            at += 1
        del bucket[at]

    def cut(self, low: int, high: int) -> list[str]:
        """Take out those at the positions from `low` to `high`, both included."""
        found: list[str] = []
        first, last = self._bucket(low), self._bucket(high)
        for number in range(first, last + 1):
            bucket = self._buckets.get(number)
            if bucket:
                start = bisect.bisect_left(bucket, low, key=self._position) if number == first else 0
                end = bisect.bisect_right(bucket, high, key=self._position) if number == last else len(bucket)
                found += bucket[start:end]
                del bucket[start:end]
        return found

    def lose(self, sites: list[str]) -> list[Held]:
        """Hold these no longer: they were taken out, and are to be given back."""
        pop = self.sites.pop
        lost = [pop(site) for site in sites]
        if self._spare:
            for site in sites:
                self._spare.pop(site, None)
        return lost

    def lose_all(self) -> list[Held]:
        """Hold nothing; all of it is to be given back."""
        lost = list(self.sites.values())
        self.sites.clear()
        self._buckets.clear()
        self._spare.clear()
        return lost

    def give_back(self, lost: list[Held]) -> None:
        """Count these no more. Apart from losing them, since it may be done in portions: it looks at each record."""
        for held in lost:
            self._uncount(held)

    # -- what is known of them

    def learn(self, held: Held, record: records.SiteRecord) -> None:
        """Keep what the store answered."""
        self._uncount(held)
        if len(record.head) > LEAN_HEAD and len(self.sites) > LEAN_FROM:
            record = msgspec.structs.replace(record, head=record.head[:LEAN_HEAD])
        self.pending += record.pending
        self.later += record.later
        held.record = record

    def known(self) -> list[str]:
        """Those that are held, and those that went last, of which some may be another node's by now."""
        return [*self.sites, *(site for site in self._lately if site not in self.sites)]

    def due_s(self, site: str) -> float:
        """The moment before which a site that is taken up is left alone, as far as memory goes (P1)."""
        return self._lately.get(site, 0.0)

    def _went(self, held: Held, wakes_s: float) -> None:
        self.outside, self._round_whole = True, False
        self._keep_due(held.site, held.ready_s)
        record = held.record
        # Who had its share, or is paused, goes whenever it may have something to do: a retry in a moment, too.
        if record is not None and (record.pending or (wakes_s == NEVER and record.later_in_s is not None)):
            self._round_dull = self._dull = False

    def _keep_due(self, site: str, due_s: float) -> None:
        self._lately[site] = max(due_s, self._lately.pop(site, 0.0))
        if len(self._lately) > LATELY_MAX:
            self._lately.popitem(last=False)

    def _uncount(self, held: Held) -> None:
        if held.record is not None:
            self.pending -= held.record.pending
            self.later -= held.record.later

    def later_in_s(self) -> float | None:
        """How soon the first of what waits is due, by the last answers; None without any. Looks at all that wait."""
        if not self.later:
            return None
        known = [held.record.later_in_s for held in self.sites.values() if held.record is not None]
        return min((seconds for seconds in known if seconds is not None), default=None)

    # -- room

    def room(self) -> int:
        """How many more sites could be taken now, those included that would make room."""
        return max(0, self.held_max - len(self.sites)) + len(self._spare)

    def rests(self, held: Held, now_s: float, delay_s: float) -> None:
        """It was answered for now, and rests: may it make room for another?

        One that comes later than it would if it were claimed anew a minute from now; and one that has had its share,
        where others are waiting. Never one that is in the middle of something only memory knows.
        """
        wakes_s = held.wakes_s(now_s)
        if not held.may_go:
            self.busy(held.site)
        elif wakes_s > now_s + delay_s + SOON_S:
            self._spare[held.site] = wakes_s
        elif self.outside and held.visits >= self._share_visits:
            self._spare[held.site] = NEVER
        else:
            self.busy(held.site)

    def put_by(self, site: str) -> None:
        """It has something to do that may not be done now (it is paused): it makes room for another."""
        held = self.sites.get(site)
        if held is not None and held.may_go:
            self._spare[site] = NEVER

    def busy(self, site: str) -> None:
        """It is asked for or visited: it stays."""
        self._spare.pop(site, None)

    def make_room(self, wanted: int, now_s: float) -> list[Held]:
        """Let go of as many as it takes to hold `wanted` more, those first that could go for longest; none due soon."""
        gone: list[Held] = []
        excess = len(self.sites) + wanted - self.held_max
        while len(gone) < excess and self._spare:
            site, wakes_s = self._spare.popitem(last=False)
            held = self.sites[site]
            if wakes_s > now_s + SOON_S and held.may_go:
                gone.append(self.drop(site))
                self._went(gone[-1], wakes_s)
        return gone

    # -- rounds through the index, by which those outside are looked at

    def begin_round(self) -> None:
        """Every site of ours is about to be seen once."""
        self._round_counted, self._round_whole, self._round_dull = 0, True, True

    def saw(self, count: int) -> None:
        """So many sites of ours stood there."""
        self._round_counted += count

    def refused(self, sites: Iterable[str] = ()) -> None:
        """These, or one more that may have something to do, found no room."""
        for site in sites:
            self._keep_due(site, 0.0)
        self.outside = True
        self._round_whole = self._round_dull = self._dull = False

    def took(self, record: records.SiteRecord) -> None:
        """One from outside was claimed: had it something to do?"""
        if record.pending or (record.later_in_s is not None and record.later_in_s <= SOON_S):
            self._round_dull = False

    def end_round(self) -> None:
        """All were seen."""
        self.counted, self._dull = self._round_counted, self._round_dull
        if self._round_whole and len(self.sites) >= self.counted:
            self.outside = False

    def moved(self) -> None:
        """What is ours has changed: what the last round counted is not known any more."""
        self.counted, self._dull, self._round_dull, self._round_whole = 0, False, False, False

    def owned(self) -> int:
        """Sites of ours as far as they are known."""
        return max(len(self.sites), self.counted) if self.outside else len(self.sites)

    def unlooked(self) -> int:
        """Sites outside that may have something to do; at least 1 where their number is not known."""
        return max(1, self.counted - len(self.sites)) if self.outside and not self._dull else 0

    # -- inside

    def _position(self, site: str) -> int:
        return ring.position(self._algorithm, site)

    def _bucket(self, position: int) -> int:
        return ring.score(self._algorithm, position) >> (ring.SCORE_BITS - BUCKET_BITS)
