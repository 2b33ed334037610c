"""Sites with a heavy tail, on the project's own ring, for `simulate growth`: who carries how much, and what moves.

Pure. The largest `HEAVY` sites are names, placed by `shared.ring` one by one. The rest is arithmetic: a node has its
share of the circle of their number (give or take its standard deviation, drawn) and of their URLs. What that leaves
out is the spread of the tail's URLs over nodes, which `Skew.error` bounds: one standard deviation, as a part of the
mean load of a node.
"""

import bisect
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from shared import ring

HEAVY = 100_000
DAY_S = 86_400.0


@dataclass(frozen=True)
class Population:
    """How many URLs each site has: the site of rank k has a share of k ** -exponent."""

    sites: int
    urls: float
    exponent: float
    algorithm: str
    seed: int

    @cached_property
    def scale(self) -> float:
        """URLs of the largest site."""
        return self.urls / power_sum(self.exponent, 1, self.sites)

    @cached_property
    def heavy(self) -> list[float]:
        """URLs of the largest sites, in order of rank."""
        return [self.scale * rank**-self.exponent for rank in range(1, min(HEAVY, self.sites) + 1)]

    @cached_property
    def positions(self) -> list[int]:
        """Where the largest sites stand on the ring, in order of rank."""
        place = ring.position
        return [place(self.algorithm, self.name(rank)) for rank in range(1, len(self.heavy) + 1)]

    @cached_property
    def placed(self) -> list[tuple[int, int]]:
        """(position, rank) of the largest sites, in ring order."""
        return sorted((position, rank) for rank, position in enumerate(self.positions, 1))

    @property
    def tail_sites(self) -> int:
        return self.sites - len(self.heavy)

    @property
    def tail_urls(self) -> float:
        return self.scale * power_sum(self.exponent, len(self.heavy) + 1, self.sites)

    def name(self, rank: int) -> str:
        return f"site-{self.seed}-{rank}.example"

    def within(self, circle: ring.Ring, arcs: Iterable[ring.Arc]) -> list[str]:
        """Those of the largest sites that stand in these arcs."""
        found: list[str] = []
        for arc in arcs:
            low, high = circle.closed(arc)
            first = bisect.bisect_left(self.placed, (low, 0))
            last = bisect.bisect_left(self.placed, (high + 1, 0))
            found += [self.name(rank) for _, rank in self.placed[first:last]]
        return found

    def reachable(self, most: float) -> float:
        """URLs that can be had if a site gives no more than `most`."""
        return sum(min(urls, most) for urls in self.heavy) + min(self.tail_urls, most * self.tail_sites)

    def dns_per_fetch(self, *, interval_s: float, ttl_s: float) -> float:
        """Look-ups for each page where a site is asked every `interval_s`: one a TTL, at least one a site."""
        often = min(1.0, interval_s / ttl_s)
        asked = sum(max(1.0, urls * often) for urls in self.heavy)
        return (asked + max(self.tail_sites, self.tail_urls * often)) / self.urls


@dataclass(frozen=True, slots=True)
class Skew:
    """The busiest node against the mean of all."""

    sites: float
    urls: float
    fetchable: float
    """Of what politeness lets be fetched in the time given."""
    busiest: float
    """Fetchable URLs of the busiest node."""
    loads: tuple[float, ...]
    """Fetchable URLs of each node."""
    error: float


def skew(population: Population, circle: ring.Ring, *, most: float) -> Skew:
    """Loads of this ring's nodes; `most` is what one site can give in the time."""
    nodes = list(circle.weights)
    rng = random.Random(f"{population.seed}/{len(nodes)}")
    sites, urls, fetchable = (dict.fromkeys(nodes, 0.0) for _ in range(3))
    for position, load in zip(population.positions, population.heavy, strict=True):
        owner = circle.owner_at(position)
        assert owner is not None
        sites[owner] += 1
        urls[owner] += load
        fetchable[owner] += min(load, most)
    tail_fetchable = min(population.tail_urls, most * population.tail_sites)
    for node in nodes:
        share = circle.share(node)
        spread = math.sqrt(population.tail_sites * share * (1 - share))
        sites[node] += population.tail_sites * share + rng.gauss(0.0, spread)
        urls[node] += population.tail_urls * share
        fetchable[node] += tail_fetchable * share
    squares = population.scale**2 * power_sum(2 * population.exponent, len(population.heavy) + 1, population.sites)
    return Skew(
        _peak(list(sites.values())),
        _peak(list(urls.values())),
        _peak(list(fetchable.values())),
        max(fetchable.values()),
        tuple(fetchable.values()),
        math.sqrt(squares / len(nodes)) / (population.urls / len(nodes)),
    )


@dataclass(frozen=True, slots=True)
class Moves:
    """What one change of the ring moves."""

    fraction: float
    """Of the circle."""
    gains: dict[str, float]
    """Fraction of the circle that each node gains."""
    arcs: tuple[ring.Arc, ...]


def moves(old: ring.Ring, new: ring.Ring) -> Moves:
    """By the arcs that the nodes themselves compute."""
    arcs = ring.moved_arcs(old, new)
    gains: dict[str, float] = {}
    for arc in arcs:
        low, high = new.closed(arc)
        if arc.target is not None:
            gains[arc.target] = gains.get(arc.target, 0.0) + (high - low + 1) / (new.top + 1)
    return Moves(sum(gains.values()), gains, tuple(arcs))


def power_sum(exponent: float, first: int, last: int) -> float:
    """The sum of k ** -exponent: the first terms one by one, the rest by Euler and Maclaurin (below 1e-9 of it)."""
    if last < first:
        return 0.0
    exact = min(last, max(first, 1_000))
    total = math.fsum(k**-exponent for k in range(first, exact))
    power = 1 - exponent
    whole = math.log(last / exact) if abs(power) < 1e-9 else (last**power - exact**power) / power
    slope = exponent * (exact ** (-exponent - 1) - last ** (-exponent - 1)) / 12
    return float(total + whole + (exact**-exponent + last**-exponent) / 2 + slope)


def _peak(loads: Sequence[float]) -> float:
    return max(loads) * len(loads) / sum(loads)
