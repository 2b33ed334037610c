"""Which site next: those that are due, the most urgent first, the longest waiting among equals.

Sites that a node has gained of late and those that it had are two lines, served in turns: after a takeover of very many
neither waits for the other. Pure: a heap of moments, and for each line a heap of what they have made ready. Times are
boot seconds.
"""

import heapq
from collections.abc import Iterable
from typing import Final

STALE_MIN: Final = (
    1_000  # replaced entries that are borne before they are looked for; beyond, as many as there are sites
)


Entry = tuple[int, float, int, str]
"""Less the priority, the moment, the number, the site."""


class Schedule:
    """At most one entry a site; a later `put` replaces the earlier one."""

    def __init__(self) -> None:
        self._when: dict[str, tuple[float, int, int, bool]] = {}  # site -> (moment, priority, number, gained)
        self._future: list[tuple[float, int, str]] = []
        self._ready: tuple[list[Entry], list[Entry]] = ([], [])  # of those it had, of those it gained
        self._turn = False
        self._count = 0

    def __len__(self) -> int:
        return len(self._when)

    def put(self, site: str, at_s: float, *, priority: int, gained: bool = False) -> None:
        """Hold the site until `at_s`; a higher priority comes first among those that are due."""
        self._count += 1
        self._when[site] = (at_s, priority, self._count, gained)
        heapq.heappush(self._future, (at_s, self._count, site))
        if len(self._future) + sum(map(len, self._ready)) > 2 * len(self._when) + STALE_MIN:
            self._sweep()

    def drop(self, sites: Iterable[str]) -> None:
        """Hold these no longer."""
        for site in sites:
            self._when.pop(site, None)

    def take(self, now_s: float) -> str | None:
        """The next site that is due, taken out; None while there is none."""
        self._ripen(now_s)
        had, gained = map(self._first, self._ready)
        if had is None and gained is None:
            return None
        line = had is None
        if had is not None and gained is not None:
            line = self._turn if had[0] == gained[0] else gained[0] < had[0]
        self._turn = not line
        site = heapq.heappop(self._ready[line])[3]
        del self._when[site]
        return site

    def next_s(self) -> float | None:
        """When to look again: the earliest moment held, past ones included; None with nothing held."""
        ready = [first[1] for first in map(self._first, self._ready) if first is not None]
        if ready:
            return min(ready)
        while self._future and not self._current(self._future[0][2], self._future[0][1]):
            heapq.heappop(self._future)
        return self._future[0][0] if self._future else None

    def _ripen(self, now_s: float) -> None:
        while self._future and self._future[0][0] <= now_s:
            at_s, number, site = heapq.heappop(self._future)
            if self._current(site, number):
                _, priority, _, gained = self._when[site]
                heapq.heappush(self._ready[gained], (-priority, at_s, number, site))

    def _first(self, line: list[Entry]) -> Entry | None:
        """The entry that comes first; before it, those that were replaced are dropped."""
        while line and not self._current(line[0][3], line[0][2]):
            heapq.heappop(line)
        return line[0] if line else None

    def _sweep(self) -> None:
        """Forget the entries that were replaced: as many as are left, so each is paid for by the `put` it came with."""
        self._future = [entry for entry in self._future if self._current(entry[2], entry[1])]
        heapq.heapify(self._future)
        for line in self._ready:
            line[:] = [entry for entry in line if self._current(entry[3], entry[2])]
            heapq.heapify(line)

    def _current(self, site: str, number: int) -> bool:
        entry = self._when.get(site)
        return entry is not None and entry[2] == number
