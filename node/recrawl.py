"""When a page is wanted again: an index policy within a site's budget; pure, it knows no clock and no store.

A page that changes l times a day, has importance mu and was visited tau days ago gains, by a visit now,

    mu / l * (1 - e^(-l tau) * (1 + l tau))        (days of importance-weighted freshness)

and always visiting the page with the largest index is the optimum for any budget (the Lagrangian of Cho and
Garcia-Molina, "Synchronizing a database to improve freshness", SIGMOD 2000; as an index: Busa-Fekete et al., arXiv
2502.02430, 2025). Nobody sorts a site's pages at each visit: at the optimum all are visited when their index reaches
one same number, the site's price. So a page's moment is worked out once, at its visit, and the store hands out the page
that is wanted first. A price that is too low has every page wanted too early: they queue up, are visited late, with an
index above the price, and the price rises; one that is too high falls likewise. The budget is used at any price.
"""

import math
from typing import Final, Protocol

from node import rates
from shared import records

GONE_CHECKS: Final = 3  # a page that was not there so often in a row is not looked for again
PRICE_MIN: Final = 1e-6  # days; the store keeps prices in millionths, and 0 means unknown
PRICE_MAX: Final = 1e6
_DAY_S: Final = 86_400.0
_PRICE_ROUND: Final = 0.25  # of all pages: visits over which the price is smoothed
_PRICE_VISITS_MIN: Final = 8  # but so many at least
_PRICE_STEP: Final = 8.0  # one visit counts as at most so many times above or below the price
_MARGIN: Final = 0.05  # of the ceiling: a page that waits for it alone is wanted so much sooner, for slots to come
_SPREAD: Final = 0.1  # of the ceiling: what was fetched in a burst does not come back in one
_MARGIN_MAX: Final = 0.5  # of the ceiling: what slow slots may take of it
_ROUNDS_MAX: Final = 4.0  # of all pages, that a page waits at most
_DAYS_MAX: Final = 1e6
_STEPS_MAX: Final = 60
_GOAL_MIN: Final = 1e-18  # days; its square root still has all its digits
_DEPTH_MAX: Final = 30
_IMPORTANCE_STEP: Final = 1.5  # a priority's worth against the one below it


Likely = tuple[tuple[float, float], ...]
"""(share, changes a day): see `rates.likely`."""


class Settings(Protocol):
    """The numbers of the configuration's recrawl table."""

    @property
    def interval_min_s(self) -> float: ...
    @property
    def interval_max_s(self) -> float: ...
    @property
    def interval_start_s(self) -> float: ...
    @property
    def visits_per_page_day(self) -> float: ...


def importance(priority: int, depth: int) -> float:
    """A page's mu: 1 for a seed of priority 5; falls with the links from a seed, as PageRank does on average."""
    return math.pow(_IMPORTANCE_STEP, priority - 5) / (1 + min(depth, _DEPTH_MAX))


def index(rate: float, waited_s: float, importance: float) -> float:
    """Days of freshness, times importance, that a visit gains after `waited_s`; `rate` in changes a day, above 0."""
    return importance / rate * _gained(rate * max(waited_s, 0.0) / _DAY_S)


def index_of(page: records.PageRecord, waited_s: float, importance: float) -> float:
    """The index of a page whose rate is known by its visits only: its mean over what they leave likely."""
    return importance * _gain(rates.likely(history_of(page)), max(waited_s, 0.0) / _DAY_S)


def wanted_s(
    page: records.PageRecord, *, price: float, importance: float, settings: Settings, pass_s: float
) -> float | None:
    """Seconds from the visit that `page` is the record after, until it is wanted again; None: never.

    `pass_s` is how long one round through all of the site's pages takes.
    """
    if not page.last_check_ms or page.gone >= GONE_CHECKS:
        return None
    longest_s = _longest_s(page, settings, pass_s)
    if price <= 0:
        reached_s = settings.interval_start_s  # all alike: the page that waited longest comes first
        return max(min(reached_s, longest_s), settings.interval_min_s)
    likely = rates.likely(history_of(page))
    if _gain(likely, longest_s / _DAY_S) <= price / importance:
        return max(longest_s, settings.interval_min_s)
    return max(min(reaches_s(likely, price, importance), longest_s), settings.interval_min_s)


def reaches_s(likely: Likely, price: float, importance: float) -> float:
    """Seconds after a visit until the index is at `price`; infinite where it never gets there."""
    goal = max(price / importance, _GOAL_MIN)
    if sum([share / rate for share, rate in likely]) <= goal * (1 + 1e-9):
        return math.inf
    # At most its square term: the root is not below this. From there Newton's steps on logarithms, kept between bounds.
    low = days = math.sqrt(2 * goal / sum([share * rate for share, rate in likely]))
    high = math.inf
    for _ in range(_STEPS_MAX):
        gain = slope = 0.0
        for share, rate in likely:
            x = rate * days
            gain += share / rate * _gained(x)
            slope += share / rate * x * x * math.exp(-x)
        low, high = (days, high) if gain < goal else (low, days)
        if low > _DAYS_MAX:
            return math.inf
        step = math.log(goal / gain) * gain / slope if slope > 0 else math.inf
        if abs(step) <= 1e-5:
            break
        days *= math.exp(min(max(step, -1.0), 1.0))
        if not low < days < high:
            days = math.sqrt(low * high)
    return days * _DAY_S


def price_after(price: float, *, index_now: float, page_records: int) -> float:
    """The site's price after a visit at which the page's index was `index_now`: a moving average of the logarithm.

    Of the logarithm, since importance spreads over orders of magnitude: no single page moves the price by much. Over
    part of a round of the site's pages: moments worked out at another price must have come before it moves far.
    """
    if price <= 0:
        return min(max(index_now, PRICE_MIN), PRICE_MAX)
    ratio = min(max(index_now / price, 1 / _PRICE_STEP), _PRICE_STEP)
    visits = max(page_records * _PRICE_ROUND, _PRICE_VISITS_MIN)
    return min(max(price * math.pow(ratio, 1 / visits), PRICE_MIN), PRICE_MAX)


def price_of_visit(
    price: float,
    page: records.PageRecord | None,
    *,
    now_ms: int,
    importance: float,
    page_records: int,
    settings: Settings,
    pass_s: float,
) -> float:
    """The price after a visit to a page whose record before it was `page`; what tells nothing of it leaves it as it is.

    That is a first visit, and one that came when it did for the sake of the longest or the shortest interval.
    """
    if page is None or not page.last_check_ms or now_ms <= page.last_check_ms:
        return price
    waited_s = (now_ms - page.last_check_ms) / 1000
    reached = index_of(page, waited_s, importance)
    if 0 < reached < price and waited_s >= _longest_s(page, settings, pass_s):
        return price
    at_once = settings.interval_min_s
    if 0 < price < reached and waited_s < 2 * at_once and index_of(page, at_once, importance) >= price:
        return price
    return price_after(price, index_now=reached, page_records=page_records)


def slot_gap_s(page_records: int, delay_s: float, settings: Settings) -> float:
    """Seconds between two recrawl slots of a site: its budget, as far as its delay allows."""
    return max(_DAY_S / (settings.visits_per_page_day * max(page_records, 1)), delay_s)


def rate_of(page: records.PageRecord) -> tuple[float, float, float] | None:
    """Changes a day: the most likely number, and the lowest and highest that the visits allow at 95 %.

    None before a second visit.
    """
    if not page.checks:
        return None
    history = history_of(page)
    return (rates.rate(history), *rates.confidence(history))


def history_of(page: records.PageRecord) -> rates.History:
    return page.intervals or rates.of_totals(page.checks, page.changes, page.observed_s)


def _longest_s(page: records.PageRecord, settings: Settings, pass_s: float) -> float:
    """The longest that is planned for: some time before the ceiling, and not the same for all.

    And no more than some rounds of the site: a page that is not worth its price today is looked at again when prices
    may have fallen, and the rate of a page that was never worth it must not rest on what it was long ago.
    """
    ceiling_s = settings.interval_max_s
    round_s = max(pass_s, _DAY_S / settings.visits_per_page_day)  # no budget is larger
    room_s = min(max(_MARGIN * ceiling_s, round_s), _MARGIN_MAX * ceiling_s)
    before_s = ceiling_s - room_s - _SPREAD * ceiling_s * _scattered(page.last_check_ms)
    return min(before_s, _ROUNDS_MAX * round_s)


def _gain(likely: Likely, days: float) -> float:
    return sum(share / rate * _gained(rate * days) for share, rate in likely)


def _gained(x: float) -> float:
    """1 - e^-x (1 + x): the chance of two or more changes; by its series where the difference would lose digits."""
    if x < 1e-3:
        return x * x * (0.5 - x / 3)
    return 1.0 - math.exp(-x) * (1.0 + x) if x < 700.0 else 1.0


def _scattered(number: int) -> float:
    """Even over [0, 1) for numbers that follow each other: multiples of the golden ratio."""
    return number * 0.6180339887498949 % 1.0
