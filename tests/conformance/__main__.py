"""`python -m tests.conformance`: every corpus judged by the product's own functions, as a table beside its peers' figures.

Exit status 1 when a gate is missed or a corpus cannot be judged, 2 when the conformance data is not at hand.
"""

import argparse
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from tests import corpus as data
from tests.conformance import judging

HEADS = ("area", "corpus", "held", "judged", "passed", "gate", "peers")
NUMBERS = range(2, 6)
FAILURES_SHOWN = 20
LIBRARIES = ("ada-url", "aiohttp", "selectolax", "tldextract", "warcio", "zstandard", "brotli")
"""Whose answers some of the verdicts rest on; those that the product uses are told with their version."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--markdown", type=Path, help="write the table, the failures and what is left out there, too")
    parser.add_argument("--only", default="", help="corpora whose area or name holds this")
    options = parser.parse_args(arguments)
    areas = list(judging.areas())
    judged = []
    for area in areas:
        for corpus in area.sets:
            if options.only in f"{area.name} {corpus.name}":
                began_s = time.monotonic()
                judged.append(judging.judge(area.name, corpus))
                print(f"{area.name}: {corpus.name}: {time.monotonic() - began_s:.1f} s", file=sys.stderr, flush=True)
    broken = [area for area in areas if area.fault]
    print("\n".join([*_table(judged), *_told(judged, broken)]))
    if any(one.absent for one in judged):
        print(f"no conformance data in {data.FOLDER} (set CRAWLRING_CONFORMANCE)", file=sys.stderr)
    elif options.markdown is not None and not options.only:
        options.markdown.write_text(markdown(judged, broken))
    if broken or not all(one.good or one.absent for one in judged):
        return 1
    return 2 if any(one.absent for one in judged) or not judged else 0


def markdown(judged: Sequence[judging.Judged], broken: Sequence[judging.Area]) -> str:
    """The page that stands in docs/."""
    lines = [
        "# Conformance",
        "",
        "What other projects test themselves with, put to this crawler: each row is judged by the function that a crawl",
        "calls, answers over real connections. Where a suite asks for something that we do on purpose in another way, its rows",
        "are left out or fail, and below it says which and why.",
        "",
        "This page is written by `make conformance` (`python -m tests.conformance --markdown docs/conformance.md`); the table",
        "is counted, not typed. The command fails when a gate is missed, and `pytest tests/conformance` judges the same rows (of",
        "the simulated populations those of one budget). The data is no part of this repository: `CRAWLRING_CONFORMANCE` names",
        "its folder, whose SOURCES.md says where each file comes from and under which licence.",
        "",
        f"Made with Python {platform.python_version()}, {_versions()}.",
        "",
        "- *held*: rows of this kind in the source; *judged*: those that are not left out.",
        "- *passed*: rows answered as the suite wants; *gate*: how many must pass.",
        "- *peers*: what others reach, of the rows held unless it says of how many, as measured in November 2026 by those who",
        "  collected the data (stdlib and urllib are Python's own). Not measured again here. Empty: no figure is known.",
        "",
        f"| {' | '.join(HEADS)} |",
        f"| {' | '.join('---:' if at in NUMBERS else '---' for at in range(len(HEADS)))} |",
        *(f"| {' | '.join(map(_cell, _row(one)))} |" for one in judged),
        "",
        (
            f"{sum(one.held for one in judged):,} rows held, {sum(one.rows for one in judged):,} judged, "
            f"{sum(one.passed for one in judged):,} passed."
        ),
        "",
        "Two sets are tests of their own and not in this table, as each of their rows is a small crawl with an origin whose",
        "log is the judge: the 33 statements of RFC 9309 (`tests/node/test_rfc9309.py`), and 69 cases from the field",
        "(`tests/field`).",
    ]
    failed = [one for one in judged if one.failed or one.fault]
    if failed or broken:
        lines += ["", "## What does not pass", ""]
        lines += [f"- {area.name}: cannot be loaded: {_cell(area.fault)}" for area in broken]
        for one in failed:
            named = [f"`{row.name}`" + (f" ({row.detail})" if row.detail else "") for row in one.failed]
            lines.append(f"- {one.corpus.name}: {_cell(one.fault or '; '.join(named))}")
    left_out = [one for one in judged if one.corpus.left_out]
    if left_out:
        lines += ["", "## What is left out, and why", ""]
        lines += [f"- {one.corpus.name}{_missing(one)}: {_cell(one.corpus.left_out)}." for one in left_out]
    noted = [one for one in judged if one.corpus.note]
    if noted:
        lines += ["", "## How some are judged, and why some fail", ""]
        lines += [f"- {one.corpus.name}: {_cell(one.corpus.note)}." for one in noted]
    return "\n".join([*lines, ""])


def _row(one: judging.Judged) -> tuple[str, ...]:
    if one.fault or one.absent:
        what = "FAULT" if one.fault else "no data"
        return one.area, one.corpus.name, str(one.held), str(one.rows), what, "", one.corpus.peers
    figures = map(str, (one.held, one.rows, one.passed, one.gate))
    return one.area, one.corpus.name, *figures, one.corpus.peers


def _missing(one: judging.Judged) -> str:
    """How many rows of a source are not judged, where it is known."""
    count = one.held - one.rows
    return f" ({count} row{'s' * (count > 1)})" if count else ""


def _table(judged: Sequence[judging.Judged]) -> Iterator[str]:
    """Fixed columns; the last is as long as it is."""
    rows = [HEADS, *map(_row, judged)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS) - 1)]
    for row in rows:
        cells = [
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        yield "  ".join([*cells, row[-1]]).rstrip()


def _told(judged: Sequence[judging.Judged], broken: Sequence[judging.Area]) -> Iterator[str]:
    for area in broken:
        yield f"{area.name}: MISSED, cannot be loaded: {area.fault}"
    for one in judged:
        if one.fault:
            yield f"{one.corpus.name}: MISSED: {one.fault}"
        elif not one.good and not one.absent:
            yield f"{one.corpus.name}: MISSED: {one.passed} of {one.rows} passed, the gate is {one.gate}"
        for row in one.failed[:FAILURES_SHOWN]:
            yield f"  {row.name}: {row.detail}"
        if len(one.failed) > FAILURES_SHOWN:
            yield f"  ... and {len(one.failed) - FAILURES_SHOWN} more"
    for one in judged:
        if one.corpus.left_out:
            yield f"{one.corpus.name} leaves out{_missing(one)}: {one.corpus.left_out}"


def _versions() -> str:
    found = {one.metadata["Name"].lower().replace("_", "-"): one.version for one in metadata.distributions()}
    return ", ".join(f"{name} {found[name]}" for name in LIBRARIES if name in found)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    sys.exit(main())
