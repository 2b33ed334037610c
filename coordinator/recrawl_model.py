"""Pages that change at random, a budget of visits, and what a recrawl policy makes of them: simulated, exact in time.

Each page changes as a Poisson process; a visit makes its copy fresh and tells only whether it had changed. Nothing is
sampled by ticks. What a policy is told is drawn; how long a copy was fresh, and how old it became, is counted as its
mean over the page's changes between the two visits. No policy knows of them before the second, so that means are exact
and a few pages that matter do not make the figures a matter of luck. Closed forms: Cho and Garcia-Molina, SIGMOD 2000.
Time is in days.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from node import rates, recrawl

BINS = 10  # of the simulated time; figures are had per bin
DAY_S = 86_400.0
_LOGNORMAL = (-4.0, 2.0)  # of the logarithm of changes a day
_PARETO = 1.16
_PRICE_NEAR = 1e-6


@dataclass(frozen=True, slots=True)
class Site:
    """The pages of one site, and how often one of them is visited."""

    rates: tuple[float, ...]
    """Changes a day."""
    importance: tuple[float, ...]
    gap: float
    """Days between two visits."""

    @property
    def budget(self) -> float:
        """Visits for each page and day."""
        return 1 / (self.gap * len(self.rates))


class Policy(Protocol):
    """What decides whose turn it is; pages are numbers."""

    def first(self, page: int, at: float) -> None:
        """Its first visit, before the simulation begins at 0; pages come in the order of these."""

    def take(self, now: float) -> int | None:
        """The page to visit now; None leaves the visit unused."""

    def visited(self, page: int, now: float, *, changed: bool) -> None:
        """What that visit told."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a policy made of a site; a sum over sites is made with `together`."""

    weight: float
    """Importance of all pages."""
    fresh: tuple[float, ...]
    """For each bin, the weight of the fresh copies, on average over its time."""
    age: tuple[float, ...]
    """For each bin, the weighted days since a copy's first unseen change."""
    visits: int
    slots: int
    longest: float
    """Days that some page waited."""

    def freshness(self, bins: slice) -> float:
        """Share of copies that were fresh, weighted by importance."""
        part = self.fresh[bins]
        return sum(part) / len(part) / self.weight

    def mean_age(self, bins: slice) -> float:
        part = self.age[bins]
        return sum(part) / len(part) / self.weight

    @property
    def used(self) -> float:
        return self.visits / self.slots if self.slots else 1.0


def together(parts: Sequence[Figures]) -> Figures:
    """The figures of several sites as those of one."""
    return Figures(
        weight=sum(part.weight for part in parts),
        fresh=tuple(map(sum, zip(*(part.fresh for part in parts), strict=True))),
        age=tuple(map(sum, zip(*(part.age for part in parts), strict=True))),
        visits=sum(part.visits for part in parts),
        slots=sum(part.slots for part in parts),
        longest=max(part.longest for part in parts),
    )


def site(shape: str, worth: str, pages: int, *, settings: recrawl.Settings, delay_s: float, seed: int) -> Site:
    """One site of a population, paced as the product paces it."""
    changes, importance = population(shape, worth, pages, seed=seed)
    return Site(changes, importance, recrawl.slot_gap_s(pages, delay_s, settings) / DAY_S)


def population(shape: str, worth: str, pages: int, *, seed: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Rates and importance: `gamma` (shape 0.5, mean 0.5) or `lognormal` (s = 2), `equal` or `pareto` (1.16)."""
    source = random.Random(f"{shape} {worth} {seed}")
    drawn = [
        source.gammavariate(0.5, 1.0) if shape == "gamma" else source.lognormvariate(*_LOGNORMAL) for _ in range(pages)
    ]
    changes = tuple(min(max(rate, rates.RATE_MIN), rates.RATE_MAX) for rate in drawn)
    return changes, tuple(source.paretovariate(_PARETO) if worth == "pareto" else 1.0 for _ in range(pages))


def run(site: Site, policy: Policy, *, days: float, seed: int) -> Figures:
    """Simulate; the first visits are one even round that ends at 0, in a random order."""
    source = random.Random(f"run {seed}")
    order = list(range(len(site.rates)))
    source.shuffle(order)
    last = [0.0] * len(order)
    for place, page in enumerate(order):
        last[page] = (place - len(order)) * site.gap
        policy.first(page, last[page])
    tally = _Tally(site, days)
    slots = int(days / site.gap)
    visits = 0
    for slot in range(slots):
        now = slot * site.gap
        taken = policy.take(now)
        if taken is None:
            continue
        visits += 1
        tally.add(taken, last[taken], now)
        changed = source.expovariate(site.rates[taken]) < now - last[taken]
        last[taken] = now
        policy.visited(taken, now, changed=changed)
    for number, since in enumerate(last):
        tally.add(number, since, days)
    width = days / BINS
    return Figures(
        weight=sum(site.importance),
        fresh=tuple(value / width for value in tally.fresh),
        age=tuple(value / width for value in tally.age),
        visits=visits,
        slots=slots,
        longest=tally.longest,
    )


class _Tally:
    """How long copies were fresh and how old they were, by bin."""

    def __init__(self, site: Site, days: float) -> None:
        self.fresh = [0.0] * BINS
        self.age = [0.0] * BINS
        self.longest = 0.0
        self._rates, self._importance = site.rates, site.importance
        self._width = days / BINS

    def add(self, page: int, since: float, until: float) -> None:
        """One interval between two visits."""
        self.longest = max(self.longest, until - since)
        weight, rate, width = self._importance[page], self._rates[page], self._width
        first, end = max(int(since / width), 0), min(int(until / width), BINS - 1)
        begin = max(first * width - since, 0.0)
        unchanged = math.exp(-rate * begin)
        for place in range(first, end + 1):
            close = min(until, (place + 1) * width) - since
            still = math.exp(-rate * close)
            fresh = (unchanged - still) / rate
            self.fresh[place] += weight * fresh
            aged = (close * close - begin * begin) / 2 - (close - begin - fresh) / rate
            self.age[place] += weight * aged
            begin, unchanged = close, still


def freshness_at(rate: float, visits: float) -> float:
    """Of a page visited so often a day, at even intervals."""
    x = rate / visits if visits > 0 else math.inf
    return -math.expm1(-x) / x if x > 0 else 1.0


def best_price(changes: Sequence[float], importance: Sequence[float], budget: float) -> float:
    """The price at which the best schedule makes `budget` visits a day in all."""
    low, high = recrawl.PRICE_MIN / 1e6, max(mu / rate for rate, mu in zip(changes, importance, strict=True))
    while low < high * (1 - _PRICE_NEAR):
        price = math.sqrt(low * high)
        if sum(best_visits(changes, importance, price)) > budget:
            low = price
        else:
            high = price
    return high


def best_visits(changes: Sequence[float], importance: Sequence[float], price: float) -> list[float]:
    """Visits a day of each page when each is visited as its index reaches the price."""
    return [DAY_S / recrawl.reaches_s(((1.0, rate),), price, mu) for rate, mu in zip(changes, importance, strict=True)]


def best_freshness(site: Site, visits: Sequence[float]) -> float:
    """Importance-weighted sum of the fresh copies at so many visits a day.

    With the best visits nobody who makes as many does better for long: a page's freshness is concave in its visits, and
    even intervals are the best for each (Cho and Garcia-Molina, section 4).
    """
    each = zip(site.rates, site.importance, visits, strict=True)
    return sum(mu * freshness_at(rate, often) for rate, mu, often in each)
