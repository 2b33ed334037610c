"""Which site next: those that are due, the most urgent first, the longest waiting among equals.

Pure: a heap of moments and a heap of what they have made ready. Times are boot seconds.
"""

import heapq
from collections.abc import Iterable
from typing import Final

STALE_MIN: Final = (
    1_000  # replaced entries that are borne before they are looked for; beyond, as many as there are sites
)


class Schedule:
    """At most one entry a site; a later `put` replaces the earlier one."""

    def __init__(self) -> None:
        self._when: dict[str, tuple[float, int, int]] = {}  # site -> (moment, priority, number of the entry)
        self._future: list[tuple[float, int, str]] = []
        self._ready: list[tuple[int, float, int, str]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._when)

    def put(self, site: str, at_s: float, *, priority: int) -> None:
        """Hold the site until `at_s`; a higher priority comes first among those that are due."""
        self._count += 1
        self._when[site] = (at_s, priority, self._count)
        heapq.heappush(self._future, (at_s, self._count, site))
        if len(self._future) + len(self._ready) > 2 * len(self._when) + STALE_MIN:
            self._sweep()

    def drop(self, sites: Iterable[str]) -> None:
        """Hold these no longer."""
        for site in sites:
            self._when.pop(site, None)

    def take(self, now_s: float) -> str | None:
        """The next site that is due, taken out; None while there is none."""
        self._ripen(now_s)
        while self._ready:
            _, _, number, site = heapq.heappop(self._ready)
            if self._current(site, number):
                del self._when[site]
                return site
        return None

    def next_s(self) -> float | None:
        """When to look again: the earliest moment held, past ones included; None with nothing held."""
        while self._ready and not self._current(self._ready[0][3], self._ready[0][2]):
            heapq.heappop(self._ready)
        if self._ready:
            return self._ready[0][1]
        while self._future and not self._current(self._future[0][2], self._future[0][1]):
            heapq.heappop(self._future)
        return self._future[0][0] if self._future else None

    def _ripen(self, now_s: float) -> None:
        while self._future and self._future[0][0] <= now_s:
            at_s, number, site = heapq.heappop(self._future)
            if self._current(site, number):
                heapq.heappush(self._ready, (-self._when[site][1], at_s, number, site))

    def _sweep(self) -> None:
        """Forget the entries that were replaced: as many as are left, so each is paid for by the `put` it came with."""
        self._future = [entry for entry in self._future if self._current(entry[2], entry[1])]
        self._ready = [entry for entry in self._ready if self._current(entry[3], entry[2])]
        heapq.heapify(self._future)
        heapq.heapify(self._ready)

    def _current(self, site: str, number: int) -> bool:
        entry = self._when.get(site)
        return entry is not None and entry[2] == number
