"""Who is visited next: the rules that deployed crawlers use, the best there is, and this product's own functions.

Nutch's AdaptiveFetchSchedule and StormCrawler's AdaptiveScheduler with their defaults; of `Ours` every decision is
made by `node.revisit` and `node.recrawl`, and what is here is what the store does: the page wanted first is handed out.
"""

import heapq
from collections.abc import Callable

from coordinator import recrawl_model
from node import recrawl, revisit
from shared import config, records

_START_MS = 100_000_000_000  # no page was visited at 0, which means never
_DAY_MS = 86_400_000
_HOUR = 1 / 24
_FRESH_LOOK = 64  # pages that the store looks at for one slot (site.lua)
_ANSWER = records.Fetched(status=200, headers=(), body=b"")


class Uniform:
    """All pages in turn."""

    def __init__(self) -> None:
        self._pages: list[int] = []
        self._next = 0

    def first(self, page: int, at: float) -> None:  # noqa: ARG002 - the order is all that counts
        self._pages.append(page)

    def take(self, now: float) -> int | None:  # noqa: ARG002 - at any time
        page = self._pages[self._next]
        self._next = (self._next + 1) % len(self._pages)
        return page

    def visited(self, page: int, now: float, *, changed: bool) -> None:
        pass


class Adaptive:
    """An interval for each page, changed by each visit; a page is visited when it is due, the longest due first."""

    def __init__(self, start: float, *, changed: Callable[[float], float], same: Callable[[float], float]) -> None:
        self._start, self._changed, self._same = start, changed, same
        self._intervals: dict[int, float] = {}
        self._due: list[tuple[float, int]] = []

    def first(self, page: int, at: float) -> None:
        self._intervals[page] = self._start
        heapq.heappush(self._due, (at + self._start, page))

    def take(self, now: float) -> int | None:
        if not self._due or self._due[0][0] > now:
            return None
        return heapq.heappop(self._due)[1]

    def visited(self, page: int, now: float, *, changed: bool) -> None:
        interval = (self._changed if changed else self._same)(self._intervals[page])
        self._intervals[page] = interval
        heapq.heappush(self._due, (now + interval, page))


def nutch(start: float) -> Adaptive:
    """0.8 times the interval after a change, else 1.4 times; within 60 s and 365 days."""
    return Adaptive(
        start,
        changed=lambda interval: max(interval * 0.8, 60 / recrawl_model.DAY_S),
        same=lambda interval: min(interval * 1.4, 365.0),
    )


def storm(start: float) -> Adaptive:
    """Half way to the shortest interval, or half as long again; within 60 minutes and 14 days."""
    return Adaptive(
        min(start, 14.0),
        changed=lambda interval: 0.5 * interval + 0.5 * _HOUR,
        same=lambda interval: min(interval * 1.5, 14.0),
    )


class Oracle:
    """Knows every rate, and the best price: each page is visited when its index reaches that.

    Nearly what visiting the page with the largest index at each slot makes (within 0.2 % of it), at far less cost.
    """

    def __init__(self, site: recrawl_model.Site) -> None:
        price = recrawl_model.best_price(site.rates, site.importance, 1 / site.gap)
        visits = recrawl_model.best_visits(site.rates, site.importance, price)
        self.freshness = recrawl_model.best_freshness(site, visits)
        self._intervals = [1 / often if often else None for often in visits]
        self._wanted: list[tuple[float, int]] = []

    def first(self, page: int, at: float) -> None:
        self._put(page, at)

    def take(self, now: float) -> int | None:  # noqa: ARG002 - the one wanted first, whenever
        return heapq.heappop(self._wanted)[1] if self._wanted else None

    def visited(self, page: int, now: float, *, changed: bool) -> None:  # noqa: ARG002 - it knows
        self._put(page, now)

    def _put(self, page: int, now: float) -> None:
        interval = self._intervals[page]
        if interval is not None:
            heapq.heappush(self._wanted, (now + interval, page))


class Ours:
    """The product: page records, a price, and the set of pages by the moment they are wanted."""

    def __init__(self, site: recrawl_model.Site, settings: config.Recrawl) -> None:
        self._site, self._settings = site, settings
        self._pass_s = site.gap * len(site.rates) * recrawl_model.DAY_S
        self._pages: list[records.PageRecord | None] = [None] * len(site.rates)
        self._versions = [0] * len(site.rates)
        self._fresh: list[tuple[float, int]] = []
        self.price = 0.0

    def first(self, page: int, at: float) -> None:
        self.visited(page, at, changed=False)

    def take(self, now: float) -> int | None:
        passed: list[tuple[float, int]] = []
        found = None
        while self._fresh and found is None and len(passed) < _FRESH_LOOK:
            entry = heapq.heappop(self._fresh)
            record = self._pages[entry[1]]
            assert record is not None
            if _ms(now) >= record.last_check_ms + self._settings.interval_min_s * 1000:
                found = entry[1]
            else:
                passed.append(entry)
        for entry in passed:
            heapq.heappush(self._fresh, entry)
        return found

    def visited(self, page: int, now: float, *, changed: bool) -> None:
        before, worth, now_ms = self._pages[page], self._site.importance[page], _ms(now)
        self.price = recrawl.price_of_visit(
            self.price,
            before,
            now_ms=now_ms,
            importance=worth,
            page_records=len(self._pages),
            settings=self._settings,
            pass_s=self._pass_s,
        )
        self._versions[page] += changed
        after = revisit.page_after(before, _ANSWER, content=self._versions[page], now_ms=now_ms)
        self._pages[page] = after
        again_s = recrawl.wanted_s(
            after, price=self.price, importance=worth, settings=self._settings, pass_s=self._pass_s
        )
        assert again_s is not None
        heapq.heappush(self._fresh, (now + again_s / recrawl_model.DAY_S, page))


def _ms(day: float) -> int:
    return _START_MS + round(day * _DAY_MS)
