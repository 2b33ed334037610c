"""The verdict on one run, from the files that it left: P1 to P5, liveness, recovery, and whether memory is flat.

P1 and P2 rest on the origin's log alone. Nothing here knows how the nodes decide; what cannot be judged is said.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from coordinator import origin_log, small_web
from node import politeness
from shared import audit, records
from tests.torture import evidence, memory, repeats, takeovers

NEAR_S = 30.0  # faults so long before a violation are told with it
LISTED_MAX = 50  # of each kind; beyond it they are only counted
EDGES = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 5.0, 20.0)
ORIGIN_ERROR_MS = 100  # of the origin's stamps, where they stand in for those of a node whose clock was stepped
SETTLE_S = 15.0  # after the last fault, before every node has to work again
SPARES = ("twin", "s")  # nodes that come and go
FORGETFUL = frozenset({"store-killed", "store-failed-over", "store-failed-over-lagging"})
END_ERROR_S = 0.01  # of a fetch's end, by its own line
BACKOFF_S = 60.0  # politeness.backoff_min_s, doubled from the third failure in a row
QUIET_S = 30.0  # once all is calm no site with something to ask is silent for longer, beside its delay


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as far as a violation needs it."""

    boot_s: float
    node: str
    url: str


class ShortGap(msgspec.Struct, frozen=True, kw_only=True):
    """P1 broken."""

    site: str
    gap_s: float
    owed_s: float
    first: Asked
    second: Asked
    faults: tuple[str, ...]


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """P1, by the origin's log."""

    judged: int
    violations: int
    smallest_ratio: float | None
    smallest_site: str | None
    moves: int
    """Gaps between requests of two nodes."""
    smallest_move_ratio: float | None
    histogram: tuple[tuple[str, int], ...]
    """(range of gap / owed, gaps)."""
    forgotten: int
    """Shorter than the Crawl-delay, not than the minimum, just after a store lost the record that held it."""
    worst: tuple[ShortGap, ...]
    short_rests: int = 0
    """Within one node: long enough from start to start, which P1 is about, but not from the end of the fetch before.

    Told, not judged: the end is what the node's own line makes of its start and its milliseconds.
    """


class Quiet(msgspec.Struct, frozen=True, kw_only=True):
    """A site that had something to ask, and was silent once all was calm."""

    site: str
    from_s: float
    """After the start of the run."""
    quiet_s: float
    allowed_s: float
    pages: int
    """Known, and not asked for."""


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """P2."""

    wanted: int
    asked: int
    missing: tuple[str, ...]
    """Never asked for."""
    missing_total: int
    unanswered: tuple[str, ...]
    """Asked for, without any answer that ends a visit."""
    unanswered_total: int
    trespasses: tuple[str, ...]
    """Asked for, though forbidden or linked from nowhere."""
    unaccounted: tuple[str, ...] | None
    """Sites whose record does not account for what was not fetched; None where no record was read."""
    lost: int
    """What no record accounts for."""
    crooked: tuple[str, ...] = ()
    """Sites whose record does not add up with what was asked for and refused, and how."""


class OwnLogs(msgspec.Struct, frozen=True, kw_only=True):
    """P1 and P4 by the nodes' and the handoff log."""

    requests: int
    handoffs: int
    gaps: int
    unjudged: int
    smallest_ratio: float | None
    gap_violations: int
    fencing_violations: int
    worst: tuple[audit.Violation, ...]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one run."""

    run: evidence.Run
    single: bool
    requests: int
    sites: int
    faults: tuple[evidence.Fault, ...]
    gaps: Gaps
    pages: Pages
    repeats_by_why: dict[str, int]
    repeats_by_fault: dict[str, dict[str, int]]
    repeats_unexplained: tuple[repeats.Repeat, ...]
    repeats_too_many: tuple[repeats.TooMany, ...]
    own_logs: OwnLogs
    takeovers: tuple[takeovers.Takeover, ...]
    idle_nodes: tuple[str, ...]
    """Did nothing after the last fault, though others did."""
    quiet: tuple[Quiet, ...]
    memory: tuple[memory.Memory, ...]
    bad_lines: int

    @property
    def recovered(self) -> bool:
        """Every node works again, nobody ended by itself, and all drained when they were told to."""
        alive = self.run.recovered_s is not None and not self.idle_nodes and not self.run.died_alone
        return alive and not any(status != 0 for status in self.run.drained.values())

    @property
    def broken(self) -> dict[str, int]:
        """Violations by promise; only what is judged."""
        found = {
            "fault": len(self.not_the_fault),
            "P1 gap": self.gaps.violations + self.own_logs.gap_violations,
            "P2 nothing lost": self.pages.lost
            + len(self.pages.trespasses)
            + len(self.pages.crooked)
            + (0 if self.run.done else 1),
            "P3 bounded repeats": self.repeats_by_why.get(repeats.UNEXPLAINED, 0) + len(self.repeats_too_many),
            "P4 fencing": self.own_logs.fencing_violations,
            "P5 takeover time": sum(one.over for one in self.takeovers) if self.single else 0,
            "liveness": len(self.quiet),
            "recovery": 0 if self.recovered else 1,
            "memory": sum(one.flat is False for one in self.memory if not one.store),
        }
        return {name: count for name, count in found.items() if count}

    @property
    def not_the_fault(self) -> list[str]:
        """Why a run of a single fault says nothing of it."""
        if not self.single:
            return []
        found = [f"{one.name}: {one.trouble}" for one in self.faults if one.trouble]
        found += [f"could not be inflicted: {one}" for one in self.run.skipped]
        if len(self.faults) != 1:
            found.append(f"{len(self.faults)} faults struck, not one")
        return found

    @property
    def held(self) -> bool:
        return not self.broken


def judge(folder: Path, *, single: bool = False) -> Verdict:
    """Read a run's folder and judge it; `single`: one fault alone, so that its takeover times are judged too."""
    return verdict(evidence.load(folder), single=single)


def verdict(run: evidence.Evidence, *, single: bool = False) -> Verdict:
    """Judge a run."""
    again = repeats.all_of(run)
    by_fault: dict[str, Counter[str]] = defaultdict(Counter)
    for one in again:
        by_fault[one.fault][one.why] += 1
    return Verdict(
        run=run.run,
        single=single,
        requests=len(run.requests),
        sites=len(run.by_site),
        faults=tuple(run.faults),
        gaps=_gaps(run),
        pages=_pages(run),
        repeats_by_why=dict(Counter(one.why for one in again)),
        repeats_by_fault={name: dict(counts) for name, counts in by_fault.items()},
        repeats_unexplained=tuple(one for one in again if one.why == repeats.UNEXPLAINED)[:LISTED_MAX],
        repeats_too_many=tuple(repeats.too_many(run, again)),
        own_logs=_own_logs(run),
        takeovers=tuple(takeovers.all_of(run)),
        idle_nodes=tuple(_idle(run)),
        quiet=tuple(_quiet(run)),
        memory=tuple(memory.judged(run.samples)),
        bad_lines=run.bad_lines,
    )


def _gaps(run: evidence.Evidence) -> Gaps:
    """The ledger of the demo judges each gap; the rest is how they are told."""
    ledger = evidence.Ledger(run)
    last: dict[str, int] = {}
    histogram: Counter[str] = Counter()
    worst: list[ShortGap] = []
    judged = moves = forgotten = violations = short_rests = 0
    smallest_move: float | None = None
    for i, (raw, request) in enumerate(zip(run.raw_requests, run.requests, strict=True)):
        gap = ledger.gap(raw)
        previous, last[request.site] = last.get(request.site), i
        before = run.requests[previous] if previous is not None else None
        if gap is None or before is None or previous is None:
            continue
        judged += 1
        histogram[_range(gap.ratio)] += 1
        if gap.ratio < 1 and _store_forgot(run, gap, before, i):
            forgotten += 1
            continue
        if before.node != request.node:
            moves += 1
            smallest_move = gap.ratio if smallest_move is None else min(smallest_move, gap.ratio)
        else:
            rest = _rest(run, gap, previous, i)
            short_rests += rest is not None and rest.ratio < 1 <= gap.ratio
        if gap.ratio < 1:
            violations += 1
            worst.append(_short(run, gap, before, request))
    return Gaps(
        judged=judged,
        violations=violations,
        smallest_ratio=ledger.smallest.ratio if ledger.smallest else None,
        smallest_site=ledger.smallest.site if ledger.smallest else None,
        moves=moves,
        smallest_move_ratio=smallest_move,
        histogram=tuple((name, histogram[name]) for name in (_range(edge - 0.001) for edge in (*EDGES, 1e9))),
        forgotten=forgotten,
        short_rests=short_rests,
        worst=tuple(sorted(worst, key=lambda one: one.gap_s / one.owed_s)[:LISTED_MAX]),
    )


def _rest(run: evidence.Evidence, gap: origin_log.Gap, previous: int, i: int) -> origin_log.Gap | None:
    """The same gap from the end of the fetch before, as its own line tells; None where there is no such line."""
    line, request = run.line_of.get(previous), run.requests[previous]
    if line is None or request.node in run.stepped:
        return None
    # The line's milliseconds count from its own start, which a slow connection puts before the arrival.
    ended_s = min(request.arrived_s, run.boot_s(line.start_ms)) + line.ms / 1000 - END_ERROR_S
    return origin_log.Gap(gap.site, run.requests[i].boot_s - ended_s, gap.required_s)


def _store_forgot(run: evidence.Evidence, gap: origin_log.Gap, before: evidence.Request, i: int) -> bool:
    """Whether the record no longer held the Crawl-delay: P1 owes the largest that it held at the request's start."""
    line = run.line_of.get(i)
    if run.run.strict or gap.seconds < run.run.delay_s or line is None or line.delay_ms / 1000 > gap.seconds:
        return False
    start_s, end_s = before.arrived_s - repeats.FORGOT_S, run.requests[i].boot_s
    return any(fault.name in FORGETFUL and fault.touches(start_s, end_s) for fault in run.faults)


def _short(
    run: evidence.Evidence, gap: origin_log.Gap, before: evidence.Request, request: evidence.Request
) -> ShortGap:
    return ShortGap(
        site=gap.site,
        gap_s=gap.seconds,
        owed_s=gap.required_s,
        first=Asked(boot_s=before.boot_s, node=before.node, url=before.url),
        second=Asked(boot_s=request.boot_s, node=request.node, url=request.url),
        faults=tuple(
            f"{fault.name} {' '.join(fault.victims)} at {fault.at_s - run.run.started_s:.1f} s".replace("  ", " ")
            for fault in run.faults_before(request.boot_s, seconds=NEAR_S)
        ),
    )


def _range(ratio: float) -> str:
    low = max((edge for edge in EDGES if edge <= ratio), default=None)
    high = min((edge for edge in EDGES if edge > ratio), default=None)
    if low is None:
        return f"below {EDGES[0]:g}"
    return f"{low:g} and more" if high is None else f"{low:g} to {high:g}"


def _pages(run: evidence.Evidence) -> Pages:
    """What the web has, against what was asked for, what was answered, and what the records say of the rest."""
    ledger = evidence.Ledger(run)
    for raw in run.raw_requests:
        ledger.add(raw)
    missing, trespasses = ledger.missing(), ledger.trespasses()
    unknown = {request.url for request in run.requests if not request.site}
    trespasses += sorted(unknown - set(trespasses))
    # Of two requests for one page, either answer will do; one that its node did not live to log was never committed.
    answered = {line.url for line in run.crawl if evidence.finished(line)}
    unanswered = [url for url in ledger.asked if url not in answered and url not in trespasses]
    site_of = {page.url: site for site, page in run.web.pages()}
    unaccounted = None
    crooked: list[str] = []
    lost = len(missing)
    if run.run.records is not None:
        absent = Counter(site_of[url].name for url in (*missing, *unanswered))
        owing = {site.name: _owing(site, absent[site.name], run.run.records.get(site.name)) for site in run.web.sites}
        unaccounted = tuple(name for name, owed in owing.items() if owed)
        lost = sum(owing.values())
        by_site = Counter(site_of[url].name for url in unanswered)
        crooked = [
            f"{site.name}: {why}"
            for site in run.web.sites
            if (end := run.run.records.get(site.name)) is not None
            for why in _crooked(run, site, end, answered=answered, unanswered=by_site[site.name])
        ]
    return Pages(
        wanted=ledger.wanted,
        asked=ledger.found,
        missing=tuple(missing[:LISTED_MAX]),
        missing_total=len(missing),
        unanswered=tuple(unanswered[:LISTED_MAX]),
        unanswered_total=len(unanswered),
        trespasses=tuple(trespasses[:LISTED_MAX]),
        unaccounted=unaccounted,
        lost=lost,
        crooked=tuple(crooked),
    )


def _crooked(
    run: evidence.Evidence, site: small_web.Site, end: evidence.SiteEnd, *, answered: set[str], unanswered: int
) -> Iterator[str]:
    """What of a site's record cannot be, given what was asked for; silent where the crawl did not end."""
    private = sum(page.kind is small_web.Kind.PRIVATE for page in site.pages)
    refused = end.set_aside.get("robots", 0)
    aside = sum(end.set_aside.values())
    if refused > private or (run.run.done and refused != private):
        yield f"{refused} refused by robots.txt, not {private}"
    waiting = end.pending + end.later
    if run.run.done and aside == refused and waiting > unanswered:
        yield f"{waiting} still queued after the end"
    whole = sum(page.url in answered for page in site.pages)
    if end.seen is not None and whole + aside + waiting < end.seen:
        yield f"{end.seen} seen, but {whole} answered, {aside} set aside and {waiting} queued"


def _owing(site: small_web.Site, absent: int, end: evidence.SiteEnd | None) -> int:
    """How many URLs of a site are neither answered, nor queued, nor set aside with a reason."""
    end = end or evidence.SiteEnd()
    private = sum(page.kind is small_web.Kind.PRIVATE for page in site.pages)
    refused = end.set_aside.get("robots", 0)
    given_up = sum(end.set_aside.values()) - refused
    return max(0, private + absent - refused - given_up - end.pending - end.later)


def _own_logs(run: evidence.Evidence) -> OwnLogs:
    """What `crawlring audit` says of P1 and P4; repeats are judged here, where the faults are known."""
    lines = list(_by_one_clock(run))
    errors_ms: dict[str, int] = {}
    for line in run.crawl:
        errors_ms[line.node] = max(errors_ms.get(line.node, 0), abs(line.clock_error_ms))
    found = audit.examine(lines, run.handoffs, clock_errors_ms=errors_ms)
    return OwnLogs(
        requests=found.requests,
        handoffs=found.handoffs,
        gaps=found.gaps,
        unjudged=found.unjudged,
        smallest_ratio=found.smallest_gap_ratio,
        gap_violations=sum(one.promise == "P1" for one in found.violations),
        fencing_violations=sum(one.promise == "P4" for one in found.violations),
        worst=tuple(one for one in found.violations if one.promise != "P3")[:LISTED_MAX],
    )


def _by_one_clock(run: evidence.Evidence) -> Iterator[records.CrawlLine]:
    """The crawl lines; those of a node whose clock was stepped have the origin's moments, or are left out."""
    if not run.stepped:
        yield from run.crawl
        return
    arrived_ms = {id(line): round(run.requests[i].wall_ms - run.requests[i].late_ms) for i, line in run.line_of.items()}
    for line in run.crawl:
        if line.node not in run.stepped:
            yield line
        elif id(line) in arrived_ms:
            yield msgspec.structs.replace(line, start_ms=arrived_ms[id(line)], clock_error_ms=ORIGIN_ERROR_MS)


def _quiet(run: evidence.Evidence) -> Iterator[Quiet]:
    """Each site's longest silence with something known to ask, once all is calm and until the crawl ends."""
    calm_s, end_s = run.run.calm_s, run.run.ended_s
    for site in run.web.sites:
        shortest_s = QUIET_S + run.owed_s[site.name]
        times = [run.requests[i].boot_s for i in run.by_site.get(site.name, [])]
        edges = [calm_s, *(at_s for at_s in times if calm_s < at_s < end_s), end_s]
        for from_s, until_s in itertools.pairwise(edges):
            if until_s - from_s <= shortest_s:
                continue
            allowed_s = shortest_s + _backs_off_s(run, site.name, from_s + shortest_s)
            # What became known in this silence is asked for so long after that moment.
            left = run.left(site.name, max(calm_s, until_s - allowed_s), from_s) if until_s - from_s > allowed_s else []
            end = (run.run.records or {}).get(site.name, evidence.SiteEnd())
            aside = sum(end.set_aside.values()) - end.set_aside.get("robots", 0)
            if len(left) > aside:  # those that were given up are not waited for
                yield Quiet(
                    site=site.name,
                    from_s=from_s - run.run.started_s,
                    quiet_s=until_s - from_s,
                    allowed_s=allowed_s,
                    pages=len(left),
                )
                break


def _backs_off_s(run: evidence.Evidence, site: str, at_s: float) -> float:
    """How long the failures in a row up to this moment make its owner wait; the origin may have seen none of them."""
    failures = 0
    for line in run.lines_of_site.get(site, []):
        if run.boot_s(line.start_ms) > at_s or line.outcome.removeprefix("failed:") in politeness.OWN_DOING:
            continue
        failures = 0 if evidence.finished(line) else failures + 1
    return BACKOFF_S * 2.0 ** max(0, failures - 2) if failures else 0.0


def _idle(run: evidence.Evidence) -> Iterator[str]:
    """Nodes that neither asked for anything after the last fault nor were seen to run; not where readiness was asked."""
    if not isinstance(run.run.recovered_s, msgspec.UnsetType):
        return
    calm_s = run.run.calm_s + SETTLE_S
    busy = {one.node for one in run.requests if one.boot_s >= run.run.calm_s}
    alive = {sample.node for sample in run.samples if sample.boot_s >= calm_s}
    names = run.run.nodes or sorted(
        {one.node for one in run.samples if not one.node.startswith((*evidence.STORES, *SPARES))}
    )
    for name in names:
        if name not in busy and (name not in alive or run.run.ended_s < calm_s):
            yield name
