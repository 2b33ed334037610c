"""Bars of a measurement as SVG: one a contender, its spread as a line, readable on a light page and on a dark one.

Pure; no library.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from tests.bench import report

WIDTH, LABEL, FIGURES, ROW, TOP, FOOT = 760, 120, 110, 28, 44, 26
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 11px; fill: #57606a; }
.title { font-size: 15px; font-weight: 600; }
.ours { fill: #1a7f37; } .other { fill: #8c959f; } .bare { fill: #54aeff; }
line { stroke: #24292f; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .small { fill: #9198a1; } line { stroke: #e6edf3; }
.ours { fill: #3fb950; } .other { fill: #6e7681; } .bare { fill: #1f6feb; }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One contender."""

    name: str
    value: report.Spread
    kind: str
    """ours, other or bare: a ceiling, not a crawler."""


def bars(title: str, rows: Sequence[Bar], *, note: str) -> str:
    """The chart; lengths are in proportion, from zero."""
    height = TOP + ROW * len(rows) + FOOT
    room = WIDTH - LABEL - FIGURES
    scale = room / max((row.value.greatest for row in rows), default=1.0)
    parts = [_bar(row, TOP + ROW * number, scale) for number, row in enumerate(rows)]
    said = "; ".join(f"{row.name} {report.figure(row.value.median)}" for row in rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label={quoteattr(f"{title}: {said}")}>\n'
        f"<style>{STYLE}</style>\n"
        f'<text class="title" x="8" y="24">{escape(title)}</text>\n{"".join(parts)}'
        f'<text class="small" x="8" y="{height - 8}">{escape(note)}</text>\n</svg>\n'
    )


def _bar(row: Bar, top: int, scale: float) -> str:
    middle, end = top + ROW / 2, LABEL + row.value.median * scale
    least, greatest = LABEL + row.value.least * scale, LABEL + row.value.greatest * scale
    return (
        f'<text x="{LABEL - 8}" y="{middle + 4:.0f}" text-anchor="end">{escape(row.name)}</text>'
        f'<rect class="{row.kind}" x="{LABEL}" y="{top + 4}" width="{end - LABEL:.1f}" height="{ROW - 8}" rx="2"/>'
        f'<line x1="{least:.1f}" x2="{greatest:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
        f'<text x="{max(end, greatest) + 8:.1f}" y="{middle + 4:.0f}">{report.figure(row.value.median)}</text>\n'
    )
