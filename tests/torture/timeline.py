"""A picture of one run: who owned which site when, every request, and every fault, as an SVG written by hand.

Pure but for reading the run's folder. Sites that moved most come first; what does not fit is left out and said.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tests.torture import evidence

WIDTH, HEIGHT = 1600, 900
LEFT, RIGHT = 118, 14
TITLE, LABELS, LANE, AXIS, LEGEND = 40, 130, 11, 30, 44
ROWS_MAX = 60
ROW_MAX, ROW_MIN = 24.0, 7.0
TICK_PX = 2  # at most one tick of a node, a site and so many pixels
LABEL_PX, SHIFT_PX = 9, 45  # between labels; further from its fault a label would mislead
MARKS = (5, 10, 15, 30, 60, 120, 300, 600, 900)  # seconds between two marks of the axis
MARKS_MAX = 16
# Okabe and Ito's eight colours, which those who see fewer colours can tell apart.
OWNERS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a600", "#666666")
FAULTS: Mapping[evidence.Kind, tuple[str, str]] = {
    "crash": ("#c1121f", "crash"),
    "killed_lease": ("#f4a300", "lease killed"),
    "planned": ("#6c757d", "planned"),
    "silent": ("#7b2cbf", "frozen or cut off"),
    "etcd": ("#8d5524", "etcd"),
    "store": ("#1d3557", "store"),
    "clock": ("#008b8b", "clock"),
    "slow": ("#9c9a00", "slow origin"),
    "none": ("#b0b0b0", "other"),
}
GROUPS = evidence.STORES  # their members share a lane
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Tenure:
    """One stretch in which a node owned a site; `quiet_s` is its last request's moment."""

    owner: str
    start_s: float
    end_s: float
    quiet_s: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Seconds since the start of the run against pixels."""

    origin_s: float
    end_s: float

    def x(self, at_s: float) -> float:
        inside_s = min(max(at_s, self.origin_s), self.end_s) - self.origin_s
        return LEFT + inside_s / max(self.end_s - self.origin_s, 0.001) * (WIDTH - LEFT - RIGHT)


def draw(folder: Path) -> str:
    """The picture of a run's folder."""
    return picture(evidence.load(folder))


def picture(run: evidence.Evidence) -> str:
    """The SVG, whole."""
    last_s = run.requests[-1].boot_s if run.requests else run.run.ended_s
    scale = Scale(run.run.started_s, max(run.run.ended_s, last_s))
    tenures = {site: list(_tenures(run, site, scale.end_s)) for site in run.by_site}
    rows = sorted(tenures, key=lambda site: (-len(tenures[site]), site))[:ROWS_MAX]
    owners = _owners(run)
    lanes = _lanes(run, owners)
    top = TITLE + LABELS + LANE * len(lanes) + 8
    height = min(ROW_MAX, max(ROW_MIN, (HEIGHT - top - AXIS - LEGEND) / max(len(rows), 1)))
    bottom = top + height * len(rows)
    colours = {owner: OWNERS[i % len(OWNERS)] for i, owner in enumerate(owners)}
    body = itertools.chain(
        _title(run, len(rows)),
        _faults(run, scale, lanes, bottom),
        *(
            _row(run, site, tenures[site], scale, colours, y=top + i * height, height=height)
            for i, site in enumerate(rows)
        ),
        _short_gaps(run, scale, {site: top + i * height for i, site in enumerate(rows)}, height),
        _axis(scale, top, bottom),
        _legend(run, colours, bottom + AXIS),
    )
    whole = round(bottom + AXIS + LEGEND)
    size = f'viewBox="0 0 {WIDTH} {whole}" width="{WIDTH}" height="{whole}"'
    font = 'font-family="system-ui, sans-serif" font-size="10" fill="#222"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
            f'<rect width="{WIDTH}" height="{whole}" fill="#fff"/>',
            *body,
            "</svg>\n",
        )
    )


def _tenures(run: evidence.Evidence, site: str, end_s: float) -> Iterator[Tenure]:
    """A site's first owner has no line in the handoff log: its requests tell."""
    requests = [run.requests[i] for i in run.by_site[site]]
    starts = [(run.boot_s(move.time_ms), move.to or "") for move in run.moves.get(site, [])]
    if not starts or requests[0].boot_s < starts[0][0]:
        starts.insert(0, (requests[0].boot_s, requests[0].node))
    for (start_s, owner), (next_s, _) in itertools.pairwise([*starts, (end_s, "")]):
        asked = (one.boot_s for one in requests if one.node == owner and start_s <= one.boot_s <= next_s)
        yield Tenure(owner, start_s, next_s, max(asked, default=start_s))


def _owners(run: evidence.Evidence) -> list[str]:
    nodes = {one.node for one in run.requests} | {move.to or "" for moves in run.moves.values() for move in moves}
    return sorted(nodes - {""})


def _lanes(run: evidence.Evidence, owners: Sequence[str]) -> list[str]:
    """One a node, and one for each group of other machines that something happened to."""
    struck = {_lane(name) for fault in run.faults for name in _struck(fault)}
    groups = struck.intersection((*GROUPS, OTHER))
    return [*sorted({*owners, *(struck - groups)}), *sorted(groups)] if run.faults else []


def _struck(fault: evidence.Fault) -> tuple[str, ...]:
    return fault.victims or {"etcd": ("etcd",), "store": ("redis",), "slow": ("web",)}.get(fault.kind, (OTHER,))


def _lane(name: str) -> str:
    return next((group for group in GROUPS if name.startswith(group)), name)


def _title(run: evidence.Evidence, rows: int) -> Iterator[str]:
    minutes = (run.run.ended_s - run.run.started_s) / 60
    left_out = f", the {rows} of them that moved most" if rows < len(run.by_site) else ""
    moves = sum(len(moves) for moves in run.moves.values())
    title = f"Who owned which site, and when: {len(run.by_site)} sites{left_out}, {minutes:.1f} minutes"
    yield f'<text x="{LEFT}" y="20" font-size="16" font-weight="600">{escape(title)}</text>'
    said = (
        f"seed {run.run.seed}, store {run.run.store}, delay {run.run.delay_s:g} s; {len(run.requests):,} requests, "
        f"{moves:,} moves, {len(run.faults)} faults"
    )
    yield f'<text x="{LEFT}" y="35" fill="#555">{escape(said)}</text>'


def _faults(run: evidence.Evidence, scale: Scale, lanes: Sequence[str], bottom: float) -> Iterator[str]:
    """A bar in each victim's lane, a faint band through all sites, and the name above where there is room."""
    top = TITLE + LABELS
    for i, lane in enumerate(lanes):
        y = top + i * LANE
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y + LANE}" y2="{y + LANE}" stroke="#eee"/>'
        yield f'<text x="{LEFT - 6}" y="{y + LANE - 2}" text-anchor="end" fill="#555">{escape(lane)}</text>'
    free = float(LEFT)
    for fault in run.faults:
        colour, _ = FAULTS[fault.kind]
        x, until = scale.x(fault.at_s), scale.x(fault.until_s)
        width = max(until - x, 2.0)
        seconds = max(0.0, fault.until_s - fault.at_s)
        said = f"{fault.name} {' '.join(fault.victims)} at {fault.at_s - scale.origin_s:.1f} s, for {seconds:.1f} s"
        yield f"<g><title>{escape(f'{said} {fault.detail}'.strip())}</title>"
        band = f'x="{x:.1f}" width="{width:.1f}"'
        yield f'<rect {band} y="{top}" height="{bottom - top:.0f}" fill="{colour}" opacity=".09"/>'
        for lane in sorted({_lane(name) for name in _struck(fault)}):
            y = top + lanes.index(lane) * LANE
            yield f'<rect {band} y="{y + 1}" height="{LANE - 2}" fill="{colour}"/>'
        at = max(x, free)
        if at - x <= SHIFT_PX:
            free = at + LABEL_PX
            yield f'<path d="M{x:.1f} {top}L{at:.1f} {top - 8}" stroke="{colour}" fill="none"/>'
            place = f'x="{at + 3:.1f}" y="{top - 10}" transform="rotate(-90 {at + 3:.1f} {top - 10})"'
            yield f'<text {place} font-size="9" fill="{colour}">{escape(fault.name)}</text>'
        yield "</g>"


def _row(
    run: evidence.Evidence,
    site: str,
    tenures: Sequence[Tenure],
    scale: Scale,
    colours: Mapping[str, str],
    *,
    y: float,
    height: float,
) -> Iterator[str]:
    """Bars by owner, pale once it has asked for the last time; ticks by the node that asked."""
    name = site.removesuffix(".example")
    base = y + height - 2
    yield f'<text x="{LEFT - 6}" y="{base:.1f}" text-anchor="end" font-size="{min(10, height):.0f}">{escape(name)}</text>'
    for one in tenures:
        colour = colours[one.owner]
        x, quiet, end = (scale.x(at_s) for at_s in (one.start_s, one.quiet_s, one.end_s))
        box = f'y="{y + 0.5:.1f}" height="{height - 1:.1f}" fill="{colour}"'
        if quiet > x:
            yield f'<rect x="{x:.1f}" width="{quiet - x:.1f}" {box} opacity=".42"/>'
        if end - quiet > 0.5:
            yield f'<rect x="{quiet:.1f}" width="{end - quiet:.1f}" {box} opacity=".13"/>'
    ticks: dict[str, list[int]] = defaultdict(list)
    for i in run.by_site[site]:
        request = run.requests[i]
        x_px = round(scale.x(request.boot_s))
        mine = ticks[request.node]
        if not mine or x_px - mine[-1] >= TICK_PX:
            mine.append(x_px)
    for node, places in ticks.items():
        steps = (f"m{at - before} 0v{height - 3:.0f}v-{height - 3:.0f}" for before, at in itertools.pairwise(places))
        path = f"M{places[0]} {y + 1.5:.1f}v{height - 3:.0f}v-{height - 3:.0f}{''.join(steps)}"
        yield f'<path d="{path}" stroke="{colours[node]}" stroke-width=".9" fill="none"/>'


def _short_gaps(run: evidence.Evidence, scale: Scale, places: Mapping[str, float], height: float) -> Iterator[str]:
    """A red mark on every gap that broke P1."""
    ledger = evidence.Ledger(run)
    for raw, request in zip(run.raw_requests, run.requests, strict=True):
        gap = ledger.gap(raw)
        if gap is not None and gap.ratio < 1 and request.site in places:
            x, y = scale.x(request.boot_s), places[request.site] + height / 2
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="#f00" stroke-width="2"/>'


def _axis(scale: Scale, top: float, bottom: float) -> Iterator[str]:
    seconds = scale.end_s - scale.origin_s
    step_s = next((step for step in MARKS if seconds / step <= MARKS_MAX), MARKS[-1])
    yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom:.1f}" y2="{bottom:.1f}" stroke="#444"/>'
    for i in range(int(seconds // step_s) + 1):
        x = scale.x(scale.origin_s + i * step_s)
        yield f'<path d="M{x:.1f} {top:.1f}V{bottom + 4:.1f}" stroke="#000" stroke-opacity=".18"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{_minutes(i * step_s)}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{bottom + 27:.1f}" text-anchor="middle">minutes</text>'


def _minutes(seconds: int) -> str:
    return f"{seconds // 60}" if seconds % 60 == 0 else f"{seconds // 60}:{seconds % 60:02}"


def _legend(run: evidence.Evidence, colours: Mapping[str, str], y: float) -> Iterator[str]:
    x = LEFT
    yield f'<text x="{LEFT - 6}" y="{y + 15:.1f}" text-anchor="end" fill="#555">owner</text>'
    for owner, colour in colours.items():
        yield f'<rect x="{x}" y="{y + 6:.1f}" width="14" height="10" fill="{colour}" opacity=".6"/>'
        yield f'<text x="{x + 18}" y="{y + 15:.1f}">{escape(owner)}</text>'
        x += 30 + 7 * len(owner)
    said = (
        f"tick: a request, in the colour of the node that asked (at most one in {TICK_PX} px); pale: owned, and not "
        "asked again; red ring: a gap too short"
    )
    yield f'<text x="{x + 10}" y="{y + 15:.1f}" fill="#555">{said}</text>'
    x = LEFT
    yield f'<text x="{LEFT - 6}" y="{y + 33:.1f}" text-anchor="end" fill="#555">fault</text>'
    seen = {fault.kind for fault in run.faults}
    for kind, (colour, name) in FAULTS.items():
        if kind in seen:
            yield f'<rect x="{x}" y="{y + 24:.1f}" width="14" height="10" fill="{colour}"/>'
            yield f'<text x="{x + 18}" y="{y + 33:.1f}">{name}</text>'
            x += 34 + 6 * len(name)
