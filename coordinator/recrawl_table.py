"""The figures of simulated recrawls, as lines for a terminal and as one table over several runs."""

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """One population's figures in one run; freshness by policy."""

    rates: str
    importance: str
    pages: int
    sites: int
    budget: float
    """Visits for each page and day."""
    seed: int
    oracle: float
    """Of the policy that knows all rates, or the closed form's optimum where that is more."""
    uniform: float
    nutch: float
    storm: float
    ours: float
    ours_early: float
    """From day 30 to 60, as a share of the oracle's in those days."""
    uniform_early: float
    age_days: float
    """Mean time since the first unseen change, ours."""
    nutch_used: float
    storm_used: float
    ours_used: float
    longest_days: float
    """The longest wait for a visit, ours."""
    missed: tuple[str, ...]


def told(line: Line) -> str:
    used = "/".join(f"{100 * used:.0f}" for used in (line.nutch_used, line.storm_used, line.ours_used))
    shares = [f"{100 * value / line.oracle:.1f}" for value in (line.uniform, line.nutch, line.storm, line.ours)]
    known = (line.rates, line.importance, _pages(line), f"{line.budget:g}", f"{line.oracle:.3f}")
    rest = (f"{100 * line.ours_early:.1f}", used, f"{line.longest_days:.1f} d", f"{line.age_days:.2f} d")
    return _row((*known, *shares, *rest, ", ".join(line.missed) or "-"))


def markdown(lines: Iterable[Line]) -> str:
    """A row for each population: means over the runs, and of ours the lowest and the highest."""
    alike: dict[tuple[str, str, str, float], list[Line]] = {}
    for line in lines:
        alike.setdefault((line.rates, line.importance, _pages(line), line.budget), []).append(line)
    head = ("rates, importance, pages, R", "uniform", "Nutch", "StormCrawler", "ours", "ours, day 30 to 60")
    rows: list[Sequence[str]] = [(*head, "Nutch / Storm / ours: budget used", "longest wait", "missed"), ("---",) * 9]
    for (rates, importance, pages, budget), runs in alike.items():
        others = f"{_mean(one.nutch_used for one in runs):.0f} / {_mean(one.storm_used for one in runs):.0f}"
        rows.append(
            (
                f"{rates}, {importance}, {pages}, {budget:g}",
                f"{_mean(one.uniform / one.oracle for one in runs):.1f}",
                f"{_mean(one.nutch / one.oracle for one in runs):.1f}",
                f"{_mean(one.storm / one.oracle for one in runs):.1f}",
                _spread(one.ours / one.oracle for one in runs),
                _spread(one.ours_early for one in runs),
                f"{others} / {100 * min(one.ours_used for one in runs):.1f}",
                f"{max(one.longest_days for one in runs):.1f} d",
                f"{sum(bool(one.missed) for one in runs)} of {len(runs)}",
            )
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _mean(shares: Iterable[float]) -> float:
    """In per cent."""
    return 100 * statistics.fmean(shares)


def _spread(shares: Iterable[float]) -> str:
    found = sorted(shares)
    return f"{_mean(found):.1f} ({100 * found[0]:.1f} to {100 * found[-1]:.1f})"


def _pages(line: Line) -> str:
    return f"{line.pages}x{line.sites}" if line.sites > 1 else str(line.pages)


def _row(cells: Sequence[str]) -> str:
    widths = (9, 6, 9, 6, 6, 7, 6, 6, 6, 6, 14, 8, 8, 6)
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


_USED = ("used n/s/ours", "longest", "age", "missed")
HEAD = _row(("rates", "worth", "pages", "R", "oracle", "uniform", "nutch", "storm", "ours", "30-60", *_USED))
