"""A verdict for readers: one page of plain text, its JSON, and a table over many runs of single faults."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from tests.torture import judge, memory, repeats, takeovers

ROWS = 12
SHOWN = 5
HEADINGS = (
    *("fault", "runs", "gaps", "smallest gap", "sites moved"),
    *("first s", "median s", "worst s", "bound s", "over", "repeats", "violations"),
)
PROMISES = (
    "fault",
    "P1 gap",
    "P2 nothing lost",
    "P3 bounded repeats",
    "P4 fencing",
    "P5 takeover time",
    "liveness",
    "recovery",
    "memory",
)


class _Told(msgspec.Struct, frozen=True):
    """The verdict, and what follows from it."""

    held: bool
    broken: dict[str, int]
    verdict: judge.Verdict


def encode(verdict: judge.Verdict) -> bytes:
    """The whole verdict as JSON."""
    return msgspec.json.format(msgspec.json.encode(_Told(verdict.held, verdict.broken, verdict)), indent=1) + b"\n"


def text(verdict: judge.Verdict) -> str:
    """One page; what is worst comes first in each part."""
    parts = (_head, _promises, _gaps, _pages, _repeats, _takeovers, _fencing, _recovery, _memory)
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part(verdict)))) + "\n"


def _head(verdict: judge.Verdict) -> Iterator[str]:
    run = verdict.run
    if verdict.held:
        yield "ALL HELD"
    else:
        yield "BROKEN: " + ", ".join(f"{name} ({count})" for name, count in verdict.broken.items())
    took = (run.ended_s - run.started_s) / 60
    yield (
        f"{took:.1f} minutes, {len(verdict.faults)} faults of {len({one.name for one in verdict.faults})} kinds, "
        f"seed {run.seed}, store {run.store}: {verdict.requests:,} requests to {verdict.sites} sites"
    )
    yield (
        f"delay {run.delay_s:g} s, lease {run.ttl_s:g} s, VL {run.view_lease_s:g} s, G {run.wire_s:g} s"
        + (f"; commit {run.commit}" if run.commit else "")
    )
    if run.late_contacts:
        yield f"{run.late_contacts} contacts were found late by their own node, and reset (P1's named exception)"
    for why in verdict.not_the_fault:
        yield f"NOT THE FAULT: {why}"
    if not verdict.single:
        for one in verdict.faults:
            if one.trouble:
                yield f"{one.name} at {one.at_s - run.started_s:.0f} s was not whole: {one.trouble}"
    if run.skipped:
        yield f"{len(run.skipped)} more faults could not be inflicted: what they strike was held by another"


def _promises(verdict: judge.Verdict) -> Iterator[str]:
    """Each promise on a line: how it was judged, and what would have broken it."""
    gaps, pages, own = verdict.gaps, verdict.pages, verdict.own_logs
    taken = sum(one.judged for one in verdict.takeovers)
    idle = sum(one.idle for one in verdict.takeovers)
    over = sum(one.over for one in verdict.takeovers)
    again = sum(verdict.repeats_by_why.values())
    broken = verdict.broken
    nodes = [one for one in verdict.memory if not one.store]
    says = {
        "P1 gap": f"{gaps.violations} of {gaps.judged:,} gaps shorter than owed; smallest {_ratio(gaps.smallest_ratio)}"
        f" of it, across {gaps.moves:,} changes of node {_ratio(gaps.smallest_move_ratio)}",
        "fault": "; ".join(verdict.not_the_fault) or "it struck alone, and was whole",
        "P2 nothing lost": f"{pages.lost} of {pages.wanted:,} pages lost, {len(pages.trespasses)} asked for against "
        f"robots.txt, {len(pages.crooked)} records that do not add up{'' if verdict.run.done else '; THE CRAWL DID NOT END'}",
        "P3 bounded repeats": f"{verdict.repeats_by_why.get(repeats.UNEXPLAINED, 0)} of {again:,} repeats unexplained, "
        f"{len(verdict.repeats_too_many)} sites with more than a fault allows",
        "P4 fencing": f"{own.fencing_violations} requests or moves out of order, of {own.handoffs:,} moves",
        "P5 takeover time": (f"{over} of {taken:,} takeovers over the bound" if taken else "none to judge")
        + (f", {idle} more sites had nothing left to ask" if idle else "")
        + ("" if verdict.single else " (told, not judged: faults overlap)"),
        "liveness": f"{len(verdict.quiet)} sites silent for more than {judge.QUIET_S:g} s and their delay, with pages "
        "to ask, once all was calm",
        "recovery": "every node works again by itself" if verdict.recovered else "see below",
        "memory": _memory_says(nodes),
    }
    for name in PROMISES:
        if name == "fault" and not verdict.single:
            continue
        word = "held"
        if name in broken:
            word = "BROKEN"
        elif name == "P5 takeover time" and (not verdict.single or not taken):
            word = "told" if taken else "none"
        elif name == "memory" and all(one.flat is None for one in nodes):
            word = "none"
        yield f"{word:6}  {name:19} {says[name]}"


def _memory_says(nodes: Sequence[memory.Memory]) -> str:
    judged = [one for one in nodes if one.flat is not None]
    if not judged:
        return f"not judged ({len(nodes)} of {len(nodes)} too short)"
    short = len(nodes) - len(judged)
    return (
        f"{sum(one.flat is False for one in judged)} of {len(judged)} nodes grew"
        + (f" ({short} of {len(nodes)} too short)" if short else "")
        + "; stores and web grow with what is found, and are told only"
    )


def _gaps(verdict: judge.Verdict) -> Iterator[str]:
    gaps = verdict.gaps
    yield "Gaps at the origin, as a share of what was owed"
    largest = max((count for _, count in gaps.histogram), default=0) or 1
    for name, count in gaps.histogram:
        yield f"  {name:>12}  {count:8,}  {'#' * round(40 * count / largest)}"
    if gaps.forgotten:
        yield f"  {gaps.forgotten} were owed the shorter delay of a record that its store had lost"
    if gaps.short_rests:
        yield f"  {gaps.short_rests} within one node were shorter from the end of the fetch before (told, not judged)"
    for one in gaps.worst[:ROWS]:
        yield (
            f"  TOO SHORT  {one.site}: {one.gap_s:.3f} s of {one.owed_s:g} s, {one.first.node} {one.first.url} at "
            f"{one.first.boot_s - verdict.run.started_s:.3f} s, then {one.second.node} {one.second.url}"
        )
        yield f"             faults before: {'; '.join(one.faults) or 'none'}"


def _pages(verdict: judge.Verdict) -> Iterator[str]:
    pages = verdict.pages
    if not (pages.missing_total or pages.unanswered_total or pages.trespasses or pages.unaccounted or pages.crooked):
        return
    yield "Pages"
    for what, total, urls in (
        ("never asked for", pages.missing_total, pages.missing),
        ("asked for, no whole answer", pages.unanswered_total, pages.unanswered),
        ("asked for against robots.txt or a link", len(pages.trespasses), pages.trespasses),
    ):
        if total:
            yield f"  {total:,} {what}: {' '.join(urls[:SHOWN])}"
    if pages.unaccounted:
        yield f"  {len(pages.unaccounted)} sites whose record does not account for them: {pages.unaccounted[:SHOWN]}"
    for why in pages.crooked[:ROWS]:
        yield f"  DOES NOT ADD UP  {why}"
    if pages.unaccounted is None and pages.unanswered_total:
        yield "  no record was read: what has no answer is told, and not counted as lost"


def _repeats(verdict: judge.Verdict) -> Iterator[str]:
    if not verdict.repeats_by_why:
        return
    yield "Pages asked for again, and why"
    for why, count in sorted(verdict.repeats_by_why.items(), key=lambda item: -item[1]):
        yield f"  {count:6,}  {why}"
    yield "  by fault"
    by_count = sorted(verdict.repeats_by_fault.items(), key=lambda item: -sum(item[1].values()))
    for name, counts in by_count[:ROWS]:
        yield f"  {sum(counts.values()):6,}  {name}: {', '.join(f'{n} {why}' for why, n in counts.items())}"
    if len(by_count) > ROWS:
        yield f"  and {len(by_count) - ROWS} more faults"
    for one in verdict.repeats_unexplained[:ROWS]:
        yield (
            f"  UNEXPLAINED  {one.url} by {one.node} at {one.boot_s - verdict.run.started_s:.3f} s; before by "
            f"{one.before_node} at {one.before_s - verdict.run.started_s:.3f} s ({one.outcome or 'not logged'})"
        )
    for many in verdict.repeats_too_many[:ROWS]:
        yield f"  TOO MANY  {many.site} under {many.fault}: {many.repeats}, allowed {many.allowed}"


def _takeovers(verdict: judge.Verdict) -> Iterator[str]:
    """Those nearest to their bound, or furthest over it, first."""
    asked = [one for one in verdict.takeovers if one.judged]
    if not asked:
        return
    yield "Takeovers: seconds from the fault to the next owner's first request" + (
        "" if verdict.single else " (faults overlap: told, not judged)"
    )
    rows = [("fault", "at s", "victims", "moved", "asked", "first", "median", "last", "bound", "over")]
    rows += [
        (
            one.fault,
            f"{one.at_s - verdict.run.started_s:.0f}",
            " ".join(one.victims),
            f"{one.moved}",
            f"{one.asked}",
            _number(one.first_s),
            _number(one.median_s),
            _number(one.last_s),
            _number(one.bound_s),
            f"{one.over}",
        )
        for one in sorted(asked, key=_spare)[:ROWS]
    ]
    yield from _aligned(rows, left=(0, 2))
    if len(asked) > ROWS:
        yield f"  and {len(asked) - ROWS} more"
    for one in asked:
        if one.over and one.worst:
            yield (
                f"  OVER  {one.fault}: {one.worst.site} from {one.worst.node} to {one.worst.to or '-'}, claimed after "
                f"{_number(one.worst.claimed_s)} s, asked after {_number(one.worst.asked_s)} s of "
                f"{one.worst.bound_s:.2f} s{': ' * bool(one.worst.late)}{one.worst.late}"
            )


def _spare(one: takeovers.Takeover) -> float:
    worst = one.worst
    return 0.0 if worst is None else -worst.beyond_s


def _fencing(verdict: judge.Verdict) -> Iterator[str]:
    own = verdict.own_logs
    yield "The nodes' own logs, as `crawlring audit` reads them"
    yield (
        f"  {own.requests:,} requests, {own.gaps:,} gaps judged, smallest {_ratio(own.smallest_ratio)}, "
        f"{own.unjudged:,} within the clock errors"
        + (f"; {verdict.bad_lines} unfinished lines of killed processes" if verdict.bad_lines else "")
    )
    for one in own.worst[:ROWS]:
        gap = "" if one.gap_ms is None else f", {one.gap_ms} ms of {one.delay_ms} ms"
        yield f"  {one.promise} {one.reason} {one.site} by {one.node} after {one.previous_node} at {one.start_ms}{gap}"


def _recovery(verdict: judge.Verdict) -> Iterator[str]:
    run = verdict.run
    if isinstance(run.recovered_s, float):
        yield f"Recovery: all nodes ready {run.recovered_s:.1f} s after the last fault was healed"
    elif run.recovered_s is None:
        yield "Recovery: NOT ALL NODES BECAME READY"
    for name in verdict.idle_nodes:
        yield f"  {name} DID NOTHING after the last fault"
    for quiet in verdict.quiet[:ROWS]:
        yield (
            f"  SILENT  {quiet.site} for {quiet.quiet_s:.1f} s of {quiet.allowed_s:.1f} s from {quiet.from_s:.1f} s on, "
            f"with {quiet.pages} pages to ask"
        )
    for end in run.died_alone:
        yield f"  ENDED BY ITSELF: {end}"
    for name, status in run.drained.items():
        if status != 0:
            yield f"  {name} DID NOT DRAIN: exit status {status}"


def _memory(verdict: judge.Verdict) -> Iterator[str]:
    if not verdict.memory:
        return
    yield "Memory, MB: median of the second quarter of a process's longest life, and of the last; MB a minute of all"
    rows = [("process", "minutes", "early", "late", "growth", "", "a minute", "")]
    for one in sorted(verdict.memory, key=lambda one: -one.growth_mb):
        share = one.growth_mb / one.early_mb if one.early_mb else 0.0
        flat = {True: "flat", False: "GREW", None: "too short to say"}[one.flat]
        rows.append(
            (
                one.process,
                f"{one.minutes:.1f}",
                f"{one.early_mb:.1f}",
                f"{one.late_mb:.1f}",
                f"{one.growth_mb:+.1f}",
                f"{share:+.1%}",
                _number(one.mb_a_minute),
                flat,
            )
        )
    yield from _aligned(rows, left=(0, 7))


# --- many runs ------------------------------------------------------------------------------------------------------


@dataclass
class _Row:
    """All runs of one fault."""

    runs: int = 0
    moved: int = 0
    asked: int = 0
    first_s: list[float] = field(default_factory=list)
    median_s: list[float] = field(default_factory=list)
    last_s: list[float] = field(default_factory=list)
    bound_s: list[float] = field(default_factory=list)
    judged: int = 0
    over: int = 0
    repeats: int = 0
    gaps: int = 0
    smallest: list[float] = field(default_factory=list)
    violations: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def combine(verdicts: Iterable[tuple[str, judge.Verdict]], *, unfinished: Iterable[str] = ()) -> str:
    """A table of faults in Markdown, several runs of each; those over their bound and broken ones first.

    `unfinished`: the fault of each run that left nothing to judge.
    """
    rows: dict[str, _Row] = {}
    for name, verdict in verdicts:
        _add(rows.setdefault(name, _Row()), verdict)
    for name in unfinished:
        row = rows.setdefault(name, _Row())
        row.runs += 1
        row.violations["did not finish"] += 1
    lines = [f"| {' | '.join(HEADINGS)} |", f"|---|{'--:|' * (len(HEADINGS) - 2)}---|"]
    for name, row in sorted(rows.items(), key=lambda item: (not item[1].violations, -item[1].over, item[0])):
        broken = ", ".join(f"{promise} {count}" for promise, count in row.violations.items()) or "none"
        cells = (
            *(name, f"{row.runs}", f"{row.gaps:,}", _ratio(min(row.smallest, default=None)), f"{row.moved}"),
            *(_number(min(row.first_s, default=None)), _number(_median(row.median_s))),
            *(_number(max(row.last_s, default=None)), _number(max(row.bound_s, default=None))),
            *(f"{row.over}" if row.judged else "none to judge", f"{row.repeats}", broken),
        )
        lines.append("| " + " | ".join(cells) + " |")
    total = sum(row.runs for row in rows.values())
    broken_runs = sum(1 for row in rows.values() if row.violations)
    lines.append("")
    lines.append(
        f"{total} runs of {len(rows)} faults, {sum(row.gaps for row in rows.values()):,} gaps; "
        + (f"{broken_runs} faults broke a promise, or did not finish." if broken_runs else "no promise was broken.")
        + " Seconds are from the fault to the next owner's first request; the bound is that of the site nearest to"
        " its own."
    )
    return "\n".join(lines) + "\n"


def _add(row: _Row, verdict: judge.Verdict) -> None:
    row.runs += 1
    row.gaps += verdict.gaps.judged
    if verdict.gaps.smallest_ratio is not None:
        row.smallest.append(verdict.gaps.smallest_ratio)
    for one in verdict.takeovers:
        row.moved += one.moved
        row.asked += one.asked
        row.over += one.over
        row.judged += one.judged
        for figures, figure in (
            (row.first_s, one.first_s),
            (row.median_s, one.median_s),
            (row.last_s, one.last_s),
            (row.bound_s, one.bound_s),
        ):
            if figure is not None:
                figures.append(figure)
    row.repeats += sum(verdict.repeats_by_why.values())
    for name, count in verdict.broken.items():
        row.violations[name] += count


def _median(figures: Sequence[float]) -> float | None:
    return statistics.median(figures) if figures else None


def _aligned(rows: Sequence[Sequence[str]], *, left: Sequence[int]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield ("  " + "  ".join(cells)).rstrip()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
