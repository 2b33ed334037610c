"""What the demo tells: the table of moved sites, and a verdict for each promise it shows. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coordinator import origin_log, small_web
from shared import records

ROWS = 12
HEADINGS = ("site", "from", "to", "pending", "validators", "changes/day", "waited s", "gap s")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that must hold, and what was seen."""

    holds: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.holds else 'FAIL'}  {self.text}"


@dataclass(frozen=True, slots=True)
class Move:
    """One site's move, its first request included once there was one."""

    moved: records.Handoff
    first: records.Handoff | None

    @property
    def waited_s(self) -> float | None:
        """From the claim to the first request."""
        if self.first is None or self.first.first_fetch_ms is None:
            return None
        return (self.first.first_fetch_ms - self.moved.time_ms) / 1000

    @property
    def gap_s(self) -> float | None:
        return None if self.first is None or self.first.gap_ms is None else self.first.gap_ms / 1000


def moves_from(
    node: str, entries: Iterable[records.Handoff], *, since_ms: int, cause: records.Cause | None = None
) -> list[Move]:
    """The sites that left a node at or after a moment (for this cause alone, if one is given), in order of moves."""
    moved: dict[tuple[str, int], records.Handoff] = {}
    first: dict[tuple[str, int], records.Handoff] = {}
    for entry in entries:
        if entry.site is None or entry.from_node != node or entry.to == node:
            continue
        if cause is not None and entry.cause != cause:
            continue
        if entry.kind == "moved" and entry.time_ms >= since_ms:
            moved[entry.site, entry.epoch] = entry
        elif entry.kind == "first_fetch":
            first[entry.site, entry.epoch] = entry
    return [Move(entry, first.get(key)) for key, entry in moved.items()]


def table(moves: Sequence[Move], *, rows: int = ROWS) -> list[str]:
    """The moves that carry the most, as aligned columns, and a line for the rest."""
    shown = sorted(moves, key=lambda move: (move.moved.change_rate is None, -(move.moved.pending or 0)))[:rows]
    cells = [HEADINGS, *(_cells(move) for move in shown)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADINGS))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    if len(moves) > len(shown):
        lines.append(f"and {len(moves) - len(shown)} more")
    return lines


def takeover(moves: Sequence[Move], *, killed_ms: int) -> str:
    """When the sites were claimed and first asked again, from the moment the lease was killed."""
    if not moves:
        return "no site has moved"
    claimed = sorted((move.moved.time_ms - killed_ms) / 1000 for move in moves)
    asked = sorted(
        (move.first.first_fetch_ms - killed_ms) / 1000
        for move in moves
        if move.first is not None and move.first.first_fetch_ms is not None
    )
    text = f"{len(moves)} sites claimed {claimed[0]:.1f} to {claimed[-1]:.1f} s after the kill"
    if asked:
        text += f"; {len(asked)} asked again since, the first after {asked[0]:.1f} s"
    return text


def summary(entry: records.Handoff) -> str:
    """An epoch's line of the handoff log."""
    before, after = " ".join(entry.before or ()), " ".join(entry.after or ())
    text = f"epoch {entry.epoch}: [{before}] -> [{after}]"
    if entry.moved_fraction is not None and entry.ideal_fraction is not None:
        text += f", {entry.moved_fraction:.1%} of the ring moved (ideal {entry.ideal_fraction:.1%})"
    return text


def refused_as_recorded(web: small_web.Web, looks: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Sites whose record does not account for their private and broken pages; `looks` is site -> reason -> count."""
    wrong = []
    for site in web.sites:
        private = sum(page.kind is small_web.Kind.PRIVATE for page in site.pages)
        broken = sum(page.kind is small_web.Kind.BROKEN for page in site.pages)
        aside = looks.get(site.name, {})
        if aside.get("robots", 0) != private or aside.get("status_500", 0) != broken:
            wrong.append(site.name)
    return wrong


def verdicts(
    ledger: origin_log.Ledger,
    moves: Sequence[Move],
    *,
    unaccounted: Sequence[str],
    sites_min: int,
) -> list[Verdict]:
    """Judge the crawl by the origins' log, the records and the handoff log."""
    missing, trespasses, smallest = ledger.missing(), ledger.trespasses(), ledger.smallest
    known = [move for move in moves if move.moved.validators]
    rated = [move for move in moves if move.moved.change_rate is not None]
    gap = f"{smallest.seconds:.3f} s of {smallest.required_s:g} s at {smallest.site}" if smallest else "none"
    return [
        Verdict(not missing, f"every page asked for: {ledger.found:,} of {ledger.wanted:,}{_such_as(missing)}"),
        Verdict(
            not unaccounted,
            f"every other refused for a recorded reason: {len(unaccounted)} sites unaccounted{_such_as(unaccounted)}",
        ),
        Verdict(not trespasses, f"nothing forbidden or unlinked asked for: {len(trespasses)}{_such_as(trespasses)}"),
        Verdict(
            smallest is not None and not ledger.short,
            f"smallest gap at the origins: {gap}, {len(ledger.short)} too short",
        ),
        Verdict(len(moves) >= sites_min, f"sites taken over: {len(moves)}, at least {sites_min}"),
        Verdict(bool(known), f"validators moved with {len(known)} sites"),
        Verdict(bool(rated), f"change rates moved with {len(rated)} sites"),
        Verdict(
            ledger.not_modified > 0,
            f"recrawl: {ledger.again:,} requests again, {ledger.not_modified:,} of them answered 304",
        ),
    ]


def _such_as(names: Sequence[str]) -> str:
    return f", such as {names[0]}" if names else ""


def _cells(move: Move) -> tuple[str, ...]:
    line = move.moved
    return (
        line.site or "",
        line.from_node or "-",
        line.to or "-",
        _number(line.pending),
        _number(line.validators),
        _number(line.change_rate),
        _number(move.waited_s),
        _number(move.gap_s),
    )


def _number(value: float | None) -> str:
    """A dash for what is not known: it is not zero."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value or 0:,.2f}"
