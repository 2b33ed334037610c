"""What one run left in its folder, read once: the origin's log, crawl logs, handoffs, faults, samples, the run itself.

Boot seconds are the common clock: everything of a run happens on one machine, whatever the nodes were told.
"""

import bisect
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from coordinator import origin_log, small_web
from shared import handoffs, records
from tests.torture import forest

Kind = Literal["crash", "killed_lease", "planned", "silent", "etcd", "store", "clock", "slow", "none"]
EARLY_MS = 500  # a line is stamped before its request leaves; two clocks of one machine differ by less
NEAR_MS = 5_000  # a crawl line and the request it tells of, by clocks that nobody has stepped
STORES = ("redis", "etcd", "web")  # names that begin so are no nodes
FROZEN_MS = 90_000  # a process may be stopped between its stamp and its request

Found = TypeVar("Found")


def finished(line: records.CrawlLine) -> bool:
    """Whether this answer ends a visit, once it is committed."""
    if line.outcome in {"not_modified", "redirected"}:
        return True
    return line.outcome == "fetched" and line.status is not None and line.status < 500 and line.status != 429


class Request(msgspec.Struct, frozen=True):
    """One request as the origin saw it."""

    boot_s: float
    late_ms: int
    wall_ms: int
    site: str
    url: str
    status: int
    node: str
    conditional: bool = False

    @property
    def robots(self) -> bool:
        return self.url.endswith("/robots.txt")

    @property
    def arrived_s(self) -> float:
        """When the kernel had it."""
        return self.boot_s - self.late_ms / 1000


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, from its infliction to its healing."""

    at_s: float
    wall_ms: int
    until_s: float
    healed_wall_ms: int
    name: str
    kind: Kind = msgspec.field(name="class")
    victims: tuple[str, ...] = ()
    detail: str = ""
    struck_s: float | None = None
    """When its infliction had come about; None where that took no time."""
    trouble: str = ""
    """What went wrong with its own work: then it was not the fault that its name says."""

    @property
    def lasts_s(self) -> float:
        return max(0.0, self.until_s - self.at_s)

    def touches(self, start_s: float, end_s: float, *, after_s: float = 0.0) -> bool:
        """Whether it, or the `after_s` seconds after it, has a moment in common with this stretch."""
        return self.at_s <= end_s and start_s <= max(self.at_s, self.until_s) + after_s


class Sample(msgspec.Struct, frozen=True):
    """One process at one moment; a store's has only its memory."""

    boot_s: float
    node: str
    rss_mb: float
    pending: int | None = None
    in_flight: int | None = None
    pages: int | None = None
    pid: int | None = None


class SiteEnd(msgspec.Struct, frozen=True):
    """What of a site's record says where its URLs are."""

    pending: int = 0
    later: int = 0
    set_aside: dict[str, int] = {}
    """By reason."""
    seen: int | None = None
    """All of its URLs that were ever queued; None where nobody asked."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What was run, and how it stood at the end."""

    seed: int
    minutes: float
    store: str
    delay_s: float
    ttl_s: float
    view_lease_s: float
    wire_s: float
    sites: int
    pages: int
    started_s: float
    calm_s: float
    ended_s: float
    done: bool
    restarts: dict[str, Any] = {}
    commit: str = ""
    versions: dict[str, str] = {}
    fingerprint: Any = None
    nodes: tuple[str, ...] = ()
    """Those that work at the end; empty: all that were sampled, spares apart."""
    recovered_s: float | msgspec.UnsetType | None = msgspec.UNSET
    """Until every node was ready again after the last fault; None where one never was."""
    died_alone: tuple[Any, ...] = ()
    """Processes that ended though nobody had ended them."""
    drained: dict[str, Any] = {}
    skipped: tuple[str, ...] = ()
    """Faults that could not be inflicted, and why."""
    late_contacts: int = 0
    """Contacts that a node found too late and reset: the named exception of P1 (a process stopped in mid-step)."""
    records: dict[str, SiteEnd] | None = None
    """How each site's record stands after the end."""

    @property
    def strict(self) -> bool:
        """Whether the store forgets nothing that it has answered."""
        return self.store == "cluster"

    @property
    def gone_s(self) -> float:
        """After this long nobody doubts that a dead node is dead."""
        return max(self.ttl_s, self.view_lease_s + self.wire_s)


@dataclass(frozen=True)
class Evidence:
    """All of one run; requests are in the origin's order, faults in that of their infliction."""

    run: Run
    web: small_web.Web
    requests: Sequence[Request]
    crawl: Sequence[records.CrawlLine]
    handoffs: Sequence[records.Handoff]
    faults: Sequence[Fault] = ()
    samples: Sequence[Sample] = ()
    late: Sequence[tuple[str, float]] = ()
    """Contacts that their own node found late, and reset: the node, and its wall seconds."""
    bad_lines: int = 0
    raw_requests: Sequence[bytes] = field(default=(), repr=False)

    @cached_property
    def wall_offset_s(self) -> float:
        """Wall time less boot time."""
        if not self.requests:
            return self.faults[0].wall_ms / 1000 - self.faults[0].at_s if self.faults else 0.0
        return statistics.median(one.wall_ms / 1000 - one.boot_s for one in self.requests)

    def boot_s(self, wall_ms: float) -> float:
        """The boot time of a moment by the store's or the origin's wall clock."""
        return wall_ms / 1000 - self.wall_offset_s

    @cached_property
    def line_of(self) -> dict[int, records.CrawlLine]:
        """The crawl line of each request, by the request's index; one that its node did not live to log has none."""
        asked: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, request in enumerate(self.requests):
            asked[request.node, request.url].append(i)
        told: dict[tuple[str, str], list[records.CrawlLine]] = defaultdict(list)
        for line in self.crawl:
            told[line.node, line.url].append(line)
        return {i: line for key, indexes in asked.items() for i, line in self._paired(indexes, told.get(key, []))}

    def _paired(self, indexes: list[int], lines: list[records.CrawlLine]) -> Iterator[tuple[int, records.CrawlLine]]:
        """By time where the clocks agree; what is left of a node whose clock was stepped, by order."""
        left = list(lines)
        rest: list[int] = []
        for i in indexes:
            near = min(left, key=lambda line: abs(self._late_ms(i, line)), default=None)
            if near is not None and -EARLY_MS <= self._late_ms(i, near) <= NEAR_MS:
                left.remove(near)
                yield i, near
            else:
                rest.append(i)
        stepped = bool(indexes) and self.requests[indexes[0]].node in self.stepped
        for i in rest:
            for line in left:
                if stepped or 0 <= self._late_ms(i, line) <= FROZEN_MS:
                    left.remove(line)
                    yield i, line
                    break

    def _late_ms(self, i: int, line: records.CrawlLine) -> int:
        return self.requests[i].wall_ms - line.start_ms

    @cached_property
    def stepped(self) -> frozenset[str]:
        """Nodes whose wall clock was stepped: their crawl lines' moments say nothing."""
        return frozenset(node for fault in self.faults if fault.kind == "clock" for node in fault.victims)

    @cached_property
    def by_site(self) -> dict[str, list[int]]:
        """Indexes of each site's requests, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for i, request in enumerate(self.requests):
            found[request.site].append(i)
        return found

    @cached_property
    def lines_of_site(self) -> dict[str, list[records.CrawlLine]]:
        """The crawl lines of each site by their own moments."""
        found: dict[str, list[records.CrawlLine]] = defaultdict(list)
        for line in sorted(self.crawl, key=lambda one: one.start_ms):
            found[line.site].append(line)
        return found

    @cached_property
    def moves(self) -> dict[str, list[records.Handoff]]:
        """The moves of each site by time, restarts of the same owner included; an append sent twice stands once."""
        found: dict[str, dict[tuple[int, str | None], records.Handoff]] = defaultdict(dict)
        for entry in self.handoffs:
            if entry.kind == "moved" and entry.site is not None:
                found[entry.site].setdefault((entry.epoch, entry.to), entry)
        return {site: sorted(moves.values(), key=lambda move: move.time_ms) for site, moves in found.items()}

    def faults_before(self, at_s: float, *, seconds: float) -> list[Fault]:
        """Those on, or healed at most `seconds` before."""
        return [fault for fault in self.faults if fault.touches(at_s - seconds, at_s)]

    @cached_property
    def first_asked_s(self) -> dict[str, float]:
        """When each URL was first asked for."""
        found: dict[str, float] = {}
        for request in self.requests:
            found.setdefault(request.url, request.boot_s)
        return found

    @cached_property
    def known_s(self) -> dict[str, float]:
        """From when on each page that may be asked for was known: a page that links to it had been answered whole."""
        answered: dict[str, float] = {}
        for i, line in self.line_of.items():
            if line.outcome == "fetched" and line.status == 200:
                ended_s = self.requests[i].arrived_s + line.ms / 1000
                answered[line.url] = min(answered.get(line.url, ended_s), ended_s)
        found = dict.fromkeys(self.web.seeds(), self.run.started_s)
        for _, page in self.web.pages():
            if page.kind is small_web.Kind.PAGE and page.url in answered:
                for link in page.links:
                    found[link] = min(found.get(link, answered[page.url]), answered[page.url])
        return found

    @cached_property
    def owed_s(self) -> dict[str, float]:
        """The delay that each site is owed once its robots.txt was read."""
        return {site.name: self.web.delay_s(site, self.run.delay_s) for site in self.web.sites}

    @cached_property
    def askable(self) -> dict[str, list[str]]:
        """The pages of each site that its robots.txt allows."""
        return {
            site.name: [page.url for page in site.pages if page.kind is not small_web.Kind.PRIVATE]
            for site in self.web.sites
        }

    def left(self, site: str, known_by_s: float, until_s: float) -> list[str]:
        """Pages of a site that were known by the one moment, and had not been asked for by the other."""
        never = float("inf")
        return [
            url
            for url in self.askable.get(site, [])
            if self.known_s.get(url, never) <= known_by_s and self.first_asked_s.get(url, never) > until_s
        ]

    @cached_property
    def ended_s(self) -> dict[str, float]:
        """When each URL first had an answer that ends a visit, as far as its node lived to log it."""
        found: dict[str, float] = {}
        for i, line in self.line_of.items():
            if finished(line):
                end_s = self.requests[i].arrived_s + line.ms / 1000
                found[line.url] = min(found.get(line.url, end_s), end_s)
        return found

    def open(self, site: str, known_by_s: float, until_s: float) -> list[str]:
        """Pages of a site that were known by the one moment, and had no whole answer by the other."""
        never = float("inf")
        return [
            url
            for url in self.askable.get(site, [])
            if self.known_s.get(url, never) <= known_by_s and self.ended_s.get(url, never) > until_s
        ]

    @cached_property
    def _boots(self) -> list[float]:
        return [one.boot_s for one in self.requests]

    def between(self, start_s: float, end_s: float) -> Sequence[Request]:
        """The requests of a stretch of time."""
        indexes = self.indexes(start_s, end_s)
        return self.requests[indexes.start : indexes.stop]

    def indexes(self, start_s: float, end_s: float) -> range:
        """Theirs."""
        return range(bisect.bisect_left(self._boots, start_s), bisect.bisect_right(self._boots, end_s))


def load(folder: Path) -> Evidence:
    """Read a run's folder; what a killed process left unfinished at the end of a file is counted, no more."""
    run = msgspec.json.decode((folder / "run.json").read_bytes(), type=Run)
    requests_file = folder / "web" / "requests.jsonl"
    raws = [raw for raw in requests_file.read_bytes().splitlines(keepends=True) if raw.endswith(b"\n")]
    bad: list[bytes] = []
    crawl = [
        line
        for path in sorted((folder / "out").rglob("crawl-*.jsonl"))
        for line in _lines(path, records.CrawlLine, bad=bad)
    ]
    handoff_file = folder / "handoffs.jsonl"
    moves = list(handoffs.read_file(handoff_file, on_bad=lambda: bad.append(b""))) if handoff_file.exists() else []
    return Evidence(
        run=run,
        web=forest.grow(run.sites, run.pages, run.seed),
        requests=[msgspec.json.decode(raw, type=Request) for raw in raws],
        crawl=crawl,
        handoffs=moves,
        faults=sorted(_lines(folder / "faults.jsonl", Fault, bad=bad), key=lambda fault: fault.at_s),
        samples=list(_lines(folder / "samples.jsonl", Sample, bad=bad)),
        late=list(_late(folder)),
        bad_lines=len(bad),
        raw_requests=raws,
    )


class KnownSites(origin_log.Ledger):
    """A ledger that has no gaps of hosts which the web does not know."""

    def _judge(self, site: str, earliest_s: float, latest_s: float) -> None:
        if site:
            super()._judge(site, earliest_s, latest_s)


class Ledger(KnownSites):
    """The demo's judge of gaps, with each gap that it judged."""

    def __init__(self, run: Evidence) -> None:
        super().__init__(run.web, minimum_s=run.run.delay_s)
        self._gap: origin_log.Gap | None = None

    def gap(self, raw: bytes) -> origin_log.Gap | None:
        """Add a line; the gap before it, None for the first of its site."""
        self._gap = None
        self.add(raw)
        return self._gap

    def _judge(self, site: str, earliest_s: float, latest_s: float) -> None:
        before_s = self._last_s.get(site)
        super()._judge(site, earliest_s, latest_s)
        if site and before_s is not None:
            self._gap = origin_log.Gap(site, latest_s - before_s, self._owed_s[site])


def _late(folder: Path) -> Iterator[tuple[str, float]]:
    """By wall seconds, from the nodes' logs."""
    for path in sorted(folder.glob("logs/*.log")):
        for raw in path.read_bytes().splitlines():
            if b'"contact.late"' not in raw:
                continue
            try:
                told = msgspec.json.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            yield told["node"], datetime.fromisoformat(told["timestamp"]).timestamp()


def _lines(path: Path, kind: type[Found], *, bad: list[bytes]) -> Iterator[Found]:
    if not path.exists():
        return
    decode = msgspec.json.Decoder(kind).decode
    for raw in path.read_bytes().splitlines():
        try:
            yield decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            bad.append(raw)
