"""What the demo's origins saw, judged: which pages were asked for, and how close together.

Pure: it is fed the lines of the origins' own log. All of a site's requests are stamped by one clock there,
whichever node sent them, so every gap can be judged (P1): exactly where the origins read a request as soon as it
was there, and within a tick of the kernel's clock where they were busy, which matters when the node gave up on
that request meanwhile.
"""

from collections import Counter
from dataclasses import dataclass

import msgspec

from coordinator import small_web

PROMPT_MS = 20  # not worth excusing the request after it
TICK_S = 0.01  # the kernel's clock, at its coarsest


class Line(msgspec.Struct, frozen=True):
    """One request, as `web_demo` writes it."""

    boot_s: float
    """When the head was read."""
    late_ms: int
    """How long the kernel had it before that."""
    wall_ms: int
    site: str | None
    url: str
    status: int
    conditional: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Two requests of a site in a row; `required_s` is what it was owed between them."""

    site: str
    seconds: float
    required_s: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.required_s


class Ledger:
    """The log so far; `add` takes its lines in order."""

    def __init__(self, web: small_web.Web, *, minimum_s: float) -> None:
        self.requests = 0
        self.not_modified = 0
        self.short: list[Gap] = []
        """Gaps that broke P1."""
        self.smallest: Gap | None = None
        self.asked: Counter[str] = Counter()
        """Requests of each page, robots.txt left out."""
        self._expected = web.expected()
        self._owed_s = {site.name: web.delay_s(site, minimum_s) for site in web.sites}
        self._last_s: dict[str, float] = {}
        self._decoder = msgspec.json.Decoder(Line)

    def add(self, raw: bytes) -> None:
        line = self._decoder.decode(raw)
        self.requests += 1
        self.not_modified += line.status == 304
        if not line.url.endswith("/robots.txt"):
            self.asked[line.url] += 1
        if line.site is not None:
            self._judge(line.site, *_arrival(line))

    @property
    def wanted(self) -> int:
        """How many URLs a whole crawl asks for."""
        return sum(kind is not small_web.Kind.PRIVATE for kind in self._expected.values())

    @property
    def found(self) -> int:
        """How many of them have been asked for."""
        return self.wanted - len(self.missing())

    @property
    def again(self) -> int:
        """Requests beyond the first of each page."""
        return self.asked.total() - len(self.asked)

    def missing(self) -> list[str]:
        """Pages that nobody has asked for yet."""
        return [
            url for url, kind in self._expected.items() if kind is not small_web.Kind.PRIVATE and url not in self.asked
        ]

    def trespasses(self) -> list[str]:
        """Pages asked for although robots.txt forbids it, or that no page links to."""
        return [url for url in self.asked if self._expected.get(url, small_web.Kind.PRIVATE) is small_web.Kind.PRIVATE]

    def _judge(self, site: str, earliest_s: float, latest_s: float) -> None:
        before_s = self._last_s.get(site)
        self._last_s[site] = earliest_s
        if before_s is None:
            return
        gap = Gap(site, latest_s - before_s, self._owed_s[site])
        if self.smallest is None or gap.ratio < self.smallest.ratio:
            self.smallest = gap
        if gap.ratio < 1:
            self.short.append(gap)


def _arrival(line: Line) -> tuple[float, float]:
    """The earliest and the latest moment at which the request can have arrived."""
    late_s = line.late_ms / 1000
    earliest_s = line.boot_s if line.late_ms <= PROMPT_MS else line.boot_s - late_s - TICK_S
    return earliest_s, line.boot_s - max(0.0, late_s - TICK_S)
