"""What came out of measurements, as values: samples, medians with their spread, ratios in a round, tables and JSON.

Pure. Other measurements of this folder use `spread`, `table` and `write_json` too.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Counts(Protocol):
    """What a store says of itself at one moment."""

    @property
    def cpu_s(self) -> float: ...
    @property
    def commands(self) -> int: ...
    @property
    def trips(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Mark:
    """A contender at one moment."""

    pages: int
    wall_s: float
    cpu_s: float
    rss_bytes: int
    requests: int = 0
    """Pages and robots.txt; 0: pages alone."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a contender, from its first page measured to its last; memory is that at the last."""

    pages: int
    wall_s: float
    cpu_s: float
    rss_bytes: int
    requests: int
    store_cpu_s: float | None = None
    store_commands: int | None = None
    store_trips: int | None = None

    @property
    def pages_per_cpu_s(self) -> float:
        return self.pages / self.cpu_s

    @property
    def cpu_ms_a_page(self) -> float:
        return 1_000 * self.cpu_s / self.pages


class Spread(NamedTuple):
    """A median with the least and the greatest."""

    median: float
    least: float
    greatest: float

    def __str__(self) -> str:
        return f"{figure(self.median)} [{figure(self.least)}-{figure(self.greatest)}]"


@dataclass(frozen=True, slots=True)
class Row:
    """One contender in the table."""

    name: str
    about: str
    versions: str
    samples: Sequence[Sample]
    missing: str = ""
    """Why there are none."""
    floor: float = 0.0
    aim: float = 0.0

    def of(self, what: str) -> Spread | None:
        """Of a field or property of the samples."""
        return _spread_or_none(getattr(sample, what) for sample in self.samples)

    def a_page(self, what: str, factor: float = 1.0) -> Spread | None:
        """Of a field divided by the pages; None where it is not known."""
        values = [(getattr(sample, what), sample.pages) for sample in self.samples]
        return _spread_or_none(factor * value / pages for value, pages in values if value is not None)


@dataclass(frozen=True, slots=True)
class Results:
    """All of a run; the first row is crawlring's."""

    rows: Sequence[Row]
    machine: Mapping[str, str]
    memory: Mapping[str, int]
    """Resident bytes after MEMORY_PAGES pages, by name; empty unless asked for."""


MEMORY_PAGES = 10_000


def sample(first: Mark, last: Mark, before: Counts | None, after: Counts | None) -> Sample:
    """What lies between two moments."""
    pages = last.pages - first.pages
    return Sample(
        pages=pages,
        wall_s=last.wall_s - first.wall_s,
        cpu_s=last.cpu_s - first.cpu_s,
        rss_bytes=last.rss_bytes,
        requests=(last.requests - first.requests) or pages,
        store_cpu_s=after.cpu_s - before.cpu_s if before and after else None,
        store_commands=after.commands - before.commands if before and after else None,
        store_trips=after.trips - before.trips if before and after else None,
    )


def spread(values: Iterable[float]) -> Spread:
    """Of at least one value."""
    ordered = sorted(values)
    return Spread(statistics.median(ordered), ordered[0], ordered[-1])


def ratios(ours: Row, theirs: Row) -> Spread | None:
    """Our pages per CPU-second over theirs, round by round: both of a round saw the same machine."""
    pairs = zip(ours.samples, theirs.samples, strict=False)
    return _spread_or_none(mine.pages_per_cpu_s / other.pages_per_cpu_s for mine, other in pairs)


def figure(value: float) -> str:
    """Three digits that count."""
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """A table of Markdown that can be read as text; the first columns are words, the others figures."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    rule = ["-" * width if column < words else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    lines = [cells[0], rule, *cells[1:]]
    return "".join(f"| {' | '.join(_aligned(line, widths, words))} |\n" for line in lines)


def write_json(path: Path, name: str, rows: Sequence[Mapping[str, Any]], machine: Mapping[str, str]) -> None:
    """One measurement's results for other programs."""
    path.write_text(json.dumps({"name": name, "machine": dict(machine), "rows": list(rows)}, indent=1) + "\n")


def speed_table(results: Results) -> str:
    """Pages per CPU-second, and crawlring's over each."""
    ours = results.rows[0]
    head = ("contender", "pages per CPU-second", "CPU ms a page", "crawlring is", "asked / aimed", "pages/s", "MB")
    return table(head, [_speed_row(ours, row) for row in results.rows])


def store_table(results: Results) -> str:
    """What the store does for a page."""
    rows = [row for row in results.rows if row.a_page("store_commands")]
    head = ("contender", "commands a page", "round trips a page", "store CPU ms a page")
    return table(head, [(row.name, *_texts(_store_figures(row))) for row in rows])


def as_json(results: Results) -> list[dict[str, Any]]:
    """A row for each contender, with every sample and its ratio."""
    return [
        {
            "contender": row.name,
            "versions": row.versions,
            "missing": row.missing,
            "samples": [asdict(one) for one in row.samples],
            "pages_per_cpu_s": row.of("pages_per_cpu_s"),
            "ratio": ratios(results.rows[0], row),
            "floor": row.floor,
            "aim": row.aim,
            "rss_bytes_after_10000_pages": results.memory.get(row.name),
        }
        for row in results.rows
    ]


def _speed_row(ours: Row, row: Row) -> tuple[str, ...]:
    if row.missing:
        return (row.name, f"not run: {row.missing}", "", "", "", "", "")
    memory = row.of("rss_bytes")
    walls = spread(one.pages / one.wall_s for one in row.samples)
    return (
        row.name,
        str(row.of("pages_per_cpu_s")),
        str(row.of("cpu_ms_a_page")),
        "" if row is ours or (ratio := ratios(ours, row)) is None else f"{ratio}x",
        f"{row.floor:g}x / {row.aim:g}x" if row.floor else "",
        figure(walls.median),
        f"{memory.median / 1e6:.0f}" if memory else "",
    )


def _store_figures(row: Row) -> Iterable[Spread | None]:
    return row.a_page("store_commands"), row.a_page("store_trips"), row.a_page("store_cpu_s", 1_000)


def _texts(values: Iterable[Spread | None]) -> list[str]:
    return [str(value or "") for value in values]


def _spread_or_none(values: Iterable[float]) -> Spread | None:
    found = list(values)
    return spread(found) if found else None


def _aligned(cells: Sequence[str], widths: Sequence[int], words: int) -> list[str]:
    pairs = enumerate(zip(cells, widths, strict=True))
    return [cell.ljust(width) if column < words else cell.rjust(width) for column, (cell, width) in pairs]
