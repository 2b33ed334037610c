"""P1, P3 and P4 recomputed from crawl lines and handoff lines, knowing nothing of how they were kept.

It knows no file and no store. One site's lines must come in one call and fit in memory; sites are independent
of each other, so a large log is judged in parts and the findings are added up. A gap is kept, broken, or not
to be judged: the clocks of two nodes differ by up to their measured errors.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from shared import records

VIOLATIONS_MAX = 1_000  # listed of one part; beyond it they are only counted
UNCOMMITTED_MAX = 2  # of one site and one crash: a fetch that was not yet committed, and one in flight (P3)
PAUSED_STATUS = 429
STOPPED = frozenset({"failed:aborted", "failed:late", "failed:guard"})  # cut short by the node itself

Promise = Literal["P1", "P3", "P4"]
Reason = Literal[
    "gap_too_short",
    "handoff_gap_too_short",
    "repeat_in_tenure",
    "repeat_after_ack",
    "too_many_repeats",
    "older_tenure_after_newer",
    "tenure_of_two_nodes",
    "request_of_another_owner",
    "handoff_order",
]


class Violation(records.Record, frozen=True, kw_only=True):
    """One broken promise, with what is needed to look it up in the logs; None = does not apply."""

    promise: Promise
    site: str
    reason: Reason
    node: str
    start_ms: int
    tenure: int
    url: str | None = None
    previous_node: str | None = None
    previous_start_ms: int | None = None
    previous_tenure: int | None = None
    gap_ms: int | None = None
    delay_ms: int | None = None
    margin_ms: int | None = None


class Findings(records.Record, frozen=True, kw_only=True):
    """What the lines say, of one part or of all."""

    requests: int = 0
    sites: int = 0
    handoffs: int = 0
    violations: tuple[Violation, ...] = ()
    smallest_gap_ratio: float | None = None
    """Of the gaps that could be judged: measured over required; below 1 is a violation of P1."""
    repeats: int = 0
    """Pages asked for again because their outcome was not committed; aborted requests count too."""
    gaps: int = 0
    """Gaps that were judged."""
    unjudged: int = 0
    """Gaps and orders that lie within the clock errors of two nodes."""
    violations_total: int = 0


def examine(
    lines: Iterable[records.CrawlLine],
    handoffs: Iterable[records.Handoff],
    *,
    clock_errors_ms: Mapping[str, int],
) -> Findings:
    """Judge whole sites, in any order of lines; `clock_errors_ms` is each node's largest in its log."""
    by_site: dict[str, list[records.CrawlLine]] = defaultdict(list)
    moves: dict[str, list[records.Handoff]] = defaultdict(list)
    for line in lines:
        by_site[line.site].append(line)
    for entry in handoffs:
        if entry.site is not None:
            moves[entry.site].append(entry)
    total = Findings()
    for site in sorted(by_site.keys() | moves.keys()):
        total = added(total, _Site(site, by_site[site], moves[site], clock_errors_ms).findings())
    return total


def added(left: Findings, right: Findings) -> Findings:
    """The findings of two parts with no site in common."""
    ratios = [ratio for ratio in (left.smallest_gap_ratio, right.smallest_gap_ratio) if ratio is not None]
    return Findings(
        requests=left.requests + right.requests,
        sites=left.sites + right.sites,
        handoffs=left.handoffs + right.handoffs,
        violations=(left.violations + right.violations)[:VIOLATIONS_MAX] if right.violations else left.violations,
        smallest_gap_ratio=min(ratios, default=None),
        repeats=left.repeats + right.repeats,
        gaps=left.gaps + right.gaps,
        unjudged=left.unjudged + right.unjudged,
        violations_total=left.violations_total + right.violations_total,
    )


class _Site:
    """The judgement of one site, built up check by check."""

    def __init__(
        self,
        site: str,
        lines: Sequence[records.CrawlLine],
        handoffs: Sequence[records.Handoff],
        errors_ms: Mapping[str, int],
    ) -> None:
        self.site = site
        self.lines = sorted(lines, key=lambda line: (line.start_ms, line.tenure, line.node))
        self.moved = _distinct(handoffs, "moved")
        self.first_fetches = _distinct(handoffs, "first_fetch")
        self.errors_ms = errors_ms
        self.violations: list[Violation] = []
        self.ratio: float | None = None
        self.gaps = self.unjudged = self.repeats = 0

    def findings(self) -> Findings:
        self._judge_gaps()
        self._judge_tenures()
        self._judge_repeats()
        self._judge_handoffs()
        return Findings(
            requests=len(self.lines),
            sites=1 if self.lines else 0,
            handoffs=len(self.moved),
            violations=tuple(self.violations[:VIOLATIONS_MAX]),
            smallest_gap_ratio=self.ratio,
            repeats=self.repeats,
            gaps=self.gaps,
            unjudged=self.unjudged,
            violations_total=len(self.violations),
        )

    def _judge_gaps(self) -> None:
        """P1: each request against the one before it, and against the one before it by the same clock.

        The second comparison finds what another node's uncertain request in between would hide.
        """
        newest: dict[tuple[str, int], records.CrawlLine] = {}
        before: records.CrawlLine | None = None
        for line in self.lines:
            clock = (line.node, line.tenure)
            earlier = [one for one in (before, newest.get(clock)) if one is not None]
            for one in earlier[:1] if len(earlier) == 2 and earlier[0] is earlier[1] else earlier:
                if self._judge_gap(one, line):
                    break  # one request is one violation
            before = newest[clock] = line

    def _judge_gap(self, before: records.CrawlLine, line: records.CrawlLine) -> bool:
        """Count one gap; true if it was too short."""
        gap_ms, margin_ms = line.start_ms - before.start_ms, _margin_ms(before, line)
        broken = gap_ms + margin_ms < line.delay_ms
        if not broken and gap_ms - margin_ms < line.delay_ms:
            self.unjudged += 1
            return False
        self.gaps += 1
        if line.delay_ms > 0:
            ratio = gap_ms / line.delay_ms
            self.ratio = ratio if self.ratio is None else min(self.ratio, ratio)
        if broken:
            self._pair("P1", "gap_too_short", before, line)
        return broken

    def _judge_tenures(self) -> None:
        """P4: a tenure has one node, and none of its requests starts after a newer tenure's first."""
        firsts: dict[int, records.CrawlLine] = {}
        newest = min((line.tenure for line in self.lines), default=0)
        owners = {move.epoch: move.to for move in self.moved if move.to is not None}
        accused: set[tuple[int, str]] = set()
        for line in self.lines:
            first = firsts.setdefault(line.tenure, line)
            if (line.tenure, line.node) not in accused:
                if first.node != line.node:
                    accused.add((line.tenure, line.node))
                    self._pair("P4", "tenure_of_two_nodes", first, line)
                elif owners.get(line.tenure, line.node) != line.node:
                    accused.add((line.tenure, line.node))
                    self._pair("P4", "request_of_another_owner", None, line)
            if line.tenure < newest:
                self._judge_order([one for tenure, one in firsts.items() if tenure > line.tenure], line)
            newest = max(newest, line.tenure)

    def _judge_order(self, newer: Sequence[records.CrawlLine], line: records.CrawlLine) -> None:
        """`newer` began before this request of an older tenure, as far as the clocks can tell."""
        earliest = min(newer, key=lambda one: one.start_ms + _margin_ms(one, line))
        if line.start_ms - earliest.start_ms > _margin_ms(earliest, line):
            self._pair("P4", "older_tenure_after_newer", earliest, line)
        else:
            self.unjudged += 1

    def _judge_repeats(self) -> None:
        """P3: the first visit of a URL that had been visited before and needed no second try."""
        last: dict[str, records.CrawlLine] = {}
        crashes: Counter[tuple[int, int]] = Counter()
        for line in self.lines:
            if line.visit == "robots":
                continue
            before = last.get(line.url)
            last[line.url] = line
            if before is None or line.visit != "first" or not (_aborted(before) or _finished(before)):
                continue
            self.repeats += 1
            if _aborted(before):
                continue  # a move, or authority that ran out, may cut a request short: counted, no more
            if before.tenure == line.tenure:
                self._pair("P3", "repeat_in_tenure", before, line)
            elif self._left_by_ack(before):
                self._pair("P3", "repeat_after_ack", before, line)
            else:
                crashes[before.tenure, line.tenure] += 1
                if crashes[before.tenure, line.tenure] == UNCOMMITTED_MAX + 1:
                    self._pair("P3", "too_many_repeats", before, line)

    def _left_by_ack(self, line: records.CrawlLine) -> bool:
        """Whether this request's tenure ended with an ack, which says that all outcomes are committed."""
        later = [move for move in self.moved if move.epoch > line.tenure]
        end = min(later, key=lambda move: move.epoch, default=None)
        return end is not None and end.settled_by == "ack" and end.from_node == line.node

    def _judge_handoffs(self) -> None:
        """P4: the moves' epochs rise with time, one owner each. P1: the gap that a move left by its line."""
        for before, move in itertools.pairwise(self.moved):
            if before.epoch == move.epoch and before.to != move.to:
                self._move("P4", "handoff_order", move, before=before, margin_ms=0)
            elif before.time_ms > move.time_ms:
                self._judge_late(before.time_ms - move.time_ms, "P4", "handoff_order", move, before=before)
        for first in self.first_fetches:
            if first.gap_ms is not None and first.delay_ms is not None and first.gap_ms < first.delay_ms:
                short_ms = first.delay_ms - first.gap_ms
                self._judge_late(short_ms, "P1", "handoff_gap_too_short", first, before=None)

    def _judge_late(
        self,
        wrong_ms: int,
        promise: Promise,
        reason: Reason,
        move: records.Handoff,
        *,
        before: records.Handoff | None,
    ) -> None:
        """Accuse only beyond the clock errors of the writers; that of one without a crawl log is unknown."""
        errors_ms = [self.errors_ms.get(one.node) for one in (before, move) if one is not None]
        margin_ms = sum(error for error in errors_ms if error is not None)
        if None in errors_ms or wrong_ms <= margin_ms:
            self.unjudged += 1
        else:
            self._move(promise, reason, move, before=before, margin_ms=margin_ms)

    def _pair(
        self,
        promise: Promise,
        reason: Reason,
        before: records.CrawlLine | None,
        line: records.CrawlLine,
    ) -> None:
        self.violations.append(
            Violation(
                promise=promise,
                site=self.site,
                reason=reason,
                node=line.node,
                start_ms=line.start_ms,
                tenure=line.tenure,
                url=line.url,
                previous_node=before.node if before else None,
                previous_start_ms=before.start_ms if before else None,
                previous_tenure=before.tenure if before else None,
                gap_ms=line.start_ms - before.start_ms if before else None,
                delay_ms=line.delay_ms,
                margin_ms=_margin_ms(before, line) if before else None,
            )
        )

    def _move(
        self,
        promise: Promise,
        reason: Reason,
        move: records.Handoff,
        *,
        before: records.Handoff | None,
        margin_ms: int,
    ) -> None:
        self.violations.append(
            Violation(
                promise=promise,
                site=self.site,
                reason=reason,
                node=move.to or move.node,
                start_ms=move.first_fetch_ms or move.time_ms,
                tenure=move.epoch,
                previous_node=before.to if before else move.from_node,
                previous_start_ms=before.time_ms if before else move.last_fetch_ms,
                previous_tenure=before.epoch if before else None,
                gap_ms=move.gap_ms,
                delay_ms=move.delay_ms,
                margin_ms=margin_ms,
            )
        )


def _distinct(handoffs: Sequence[records.Handoff], kind: str) -> list[records.Handoff]:
    """Lines of one kind by epoch; an append that was sent twice stands once."""
    seen: dict[tuple[int, str | None, str], records.Handoff] = {}
    for entry in handoffs:
        if entry.kind == kind:
            seen.setdefault((entry.epoch, entry.to, entry.node), entry)
    return sorted(seen.values(), key=lambda entry: (entry.epoch, entry.time_ms))


def _margin_ms(one: records.CrawlLine, other: records.CrawlLine) -> int:
    """How far the clocks of two requests may lie apart. Within a tenure it is one process, so one clock."""
    if one.node == other.node and one.tenure == other.tenure:
        return 0
    return abs(one.clock_error_ms) + abs(other.clock_error_ms)


def _finished(line: records.CrawlLine) -> bool:
    """Whether this answer ended the URL's visit, so that its commit takes the URL from the queue."""
    if line.outcome in {"not_modified", "redirected"}:
        return True
    return line.outcome == "fetched" and line.status is not None and line.status < 500 and line.status != PAUSED_STATUS


def _aborted(line: records.CrawlLine) -> bool:
    return line.outcome in STOPPED
