"""The figures of a large cluster's move or start, from samples, the handoff log and the origin's log, and how they are told.

It asks nobody anything. A row is a mapping that JSON can hold; all times are seconds from the kill, the joiner's view or the start.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared import config
from tests.bench import report, scale_watch

MEMBER = config.Membership()
POLITE = config.Politeness()
P5_GONE_S = max(MEMBER.lease_ttl_s, MEMBER.view_lease_s + MEMBER.wire_s)
P5_SLACK_S = 2.0
MB = 1e6


@dataclass(frozen=True, slots=True)
class Move:
    """An entry of the handoff log: `moved` or `epoch`."""

    kind: str
    at_s: float
    site: str | None
    to: str | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a scene left behind."""

    name: str
    sites: int
    delay_s: float
    samples: Sequence[scale_watch.Sample]
    moves: Sequence[Move]
    requests: scale_watch.Requests
    audit_status: int

    def at(self, moment_s: float) -> scale_watch.Sample:
        """The sample next to a moment."""
        return min(self.samples, key=lambda one: abs(one.at_s - moment_s))

    @property
    def holds(self) -> bool:
        return self.requests.smallest_gap_s >= POLITE.delay_min_s and self.audit_status == 0


def move_row(seen: Evidence, began_s: float, stay: Sequence[str], *, before_s: float, after_s: float) -> dict[str, Any]:
    """Of a crash or a join; `began_s` is the kill or the start of the joiner's process."""
    asked = seen.requests
    claims = {one.site: one.at_s for one in seen.moves if _counts(one, began_s, asked.moving, asked.takers)}
    views = [one.at_s for one in seen.moves if one.kind == "epoch" and one.at_s >= began_s]
    zero_s = began_s if seen.name == "crash" or not views else views[0]
    first_s, last_s = min(claims.values(), default=zero_s), max(claims.values(), default=zero_s)
    taken = sorted(asked.taken_s.values())
    late = sorted(at_s - claims[site] - seen.delay_s for site, at_s in asked.taken_s.items() if site in claims)
    bound_s = (P5_GONE_S if seen.name == "crash" else 0.0) + seen.delay_s + P5_SLACK_S
    begin_s, end_s = (taken[0], taken[-1]) if taken else (last_s, last_s)
    phases = {
        "before": (began_s - before_s, began_s),
        "until the first claim": (began_s, first_s),
        "claims": (first_s, last_s),
        "claimed, not due": (last_s, begin_s),
        "first requests": (begin_s, end_s),
    }
    if len(taken) == len(asked.moving):
        phases["after"] = (end_s, end_s + after_s)
    return {
        "scene": seen.name,
        "sites": seen.sites,
        "delay_s": seen.delay_s,
        "moving": len(asked.moving),
        "asked_again": len(taken),
        "view_s": [round(at_s - began_s, 2) for at_s in views[:3]],
        "first_request_s": _quantiles([at_s - zero_s for at_s in taken]),
        "p5_s": bound_s,
        "p5_within": round(sum(at_s - zero_s <= bound_s for at_s in taken) / max(len(taken), 1), 4),
        "claims_s": [round(first_s - zero_s, 2), round(last_s - zero_s, 2)],
        "claims": len(claims),
        "claims_a_s": _rate(len(claims), last_s - first_s),
        "late_after_claim_s": _quantiles(late),
        "p5_within_of_claim": round(sum(one <= P5_SLACK_S for one in late) / max(len(late), 1), 4),
        "node_cpu_us_a_claim": round(1e6 * _cpu_s(seen, first_s, last_s, asked.takers) / max(len(claims), 1)),
        "node_cpu_us_a_request_then": round(
            1e6 * _cpu_s(seen, begin_s, end_s, stay) / max(_between(seen, begin_s, end_s, stay), 1)
        ),
        "first_requests_a_s": _rate(len(taken), end_s - begin_s),
        "phases": [_phase(seen, name, span, stay) for name, span in phases.items()],
        "work": _work(seen, began_s - before_s, began_s, last_s, len(claims)),
        "smallest_gap_s": round(asked.smallest_gap_s, 4),
        "requests": asked.count,
        "audit": seen.audit_status,
        "rss_mb": {name: round(one / MB) for name, one in seen.at(end_s).rss_bytes.items()},
        "holds": seen.holds,
    }


def start_row(seen: Evidence, began_s: float, claimed_s: float | None) -> dict[str, Any]:
    """Of a start; `claimed_s` is None where not all sites were claimed in time."""
    first, last = seen.at(began_s), seen.samples[-1]
    asked = seen.requests
    calls = _delta(last.calls, first.calls)
    return {
        "scene": seen.name,
        "sites": seen.sites,
        "delay_s": seen.delay_s,
        "first_request_s": None if asked.first_s is None else round(asked.first_s - began_s, 2),
        "claimed_s": claimed_s and round(claimed_s, 1),
        "progress": _progress(seen, began_s),
        "requests": asked.count,
        "store_calls": {name: count for name, count in calls.items() if count > seen.sites / 1_000},
        "scripts_a_site": round((last.scripts() - first.scripts()) / seen.sites, 3),
        "trips": last.trips - first.trips,
        "cpu_s": {name: round(cpu_s - first.cpu_s.get(name, 0.0), 1) for name, cpu_s in last.cpu_s.items()},
        "etcd_calls": _delta(last.etcd_calls, first.etcd_calls),
        "rss_mb": {name: round(one / MB) for name, one in last.rss_bytes.items()},
        "store_bytes_a_site": round(first.store_bytes / seen.sites),
        "smallest_gap_s": round(asked.smallest_gap_s, 4),
        "audit": seen.audit_status,
        "holds": seen.holds,
    }


def told(row: Mapping[str, Any]) -> str:
    """A row for readers."""
    lines = [f"\n## {row['scene']}: {row['sites']:,} sites, delay {row['delay_s']:g} s\n"]
    tables = {"phases", "progress"}
    lines += [f"{name}: {_text(value)}" for name, value in row.items() if name not in tables | {"scene", "sites"}]
    for name in tables & row.keys():
        rows = row[name]
        if rows:
            lines += ["", report.table(list(rows[0]), [[_text(one) for one in line.values()] for line in rows])]
    return "\n".join(lines)


def _counts(move: Move, began_s: float, moving: Collection[str], takers: Collection[str]) -> bool:
    return move.kind == "moved" and move.at_s >= began_s and move.to in takers and move.site in moving


def _phase(seen: Evidence, name: str, span: tuple[float, float], stay: Sequence[str]) -> dict[str, Any]:
    """Requests a second of those that stay, and CPU in cores."""
    begin_s, end_s = span
    first, last = seen.at(begin_s), seen.at(end_s)
    seconds = max(last.at_s - first.at_s, 1e-9)
    everyone = {(node, busy) for node, busy in seen.requests.by_second}
    busy = sum(seen.requests.rate(node, begin_s, end_s, busy=True) for node in stay)
    all_of = sum(seen.requests.rate(node, begin_s, end_s, busy=kind) for node, kind in everyone if node in stay)
    cores = {
        name: round((cpu_s - first.cpu_s.get(name, 0.0)) / seconds, 2)
        for name, cpu_s in sorted(last.cpu_s.items())
        if last.at_s > first.at_s
    }
    return {
        "phase": name,
        "seconds": round(end_s - begin_s, 1),
        "busy sites' requests/s": round(busy, 1),
        "all requests/s of who stays": round(all_of, 1),
        "cores": cores,
    }


def _cpu_s(seen: Evidence, begin_s: float, end_s: float, names: Collection[str]) -> float:
    """CPU of these nodes between two moments, all they did."""
    first, last = seen.at(begin_s), seen.at(end_s)
    return sum(last.cpu_s.get(name, 0.0) - first.cpu_s.get(name, 0.0) for name in names)


def _between(seen: Evidence, begin_s: float, end_s: float, names: Collection[str]) -> int:
    """Requests that these nodes counted between two moments."""
    first, last = seen.at(begin_s).reports, seen.at(end_s).reports
    return sum(last[name].requests - first[name].requests for name in names if name in last and name in first)


def _work(seen: Evidence, usual_s: float, began_s: float, end_s: float, moved: int) -> dict[str, Any]:
    """Store and etcd calls from the move's begin to its last claim, less what the usual work would have taken."""
    usual, begun, ended = seen.at(usual_s), seen.at(began_s), seen.at(end_s)
    requests_before = max(1, _requests(begun) - _requests(usual))
    requests_during = max(0, _requests(ended) - _requests(begun))
    share = requests_during / requests_before
    calls = {
        name: round((count - share * (begun.calls.get(name, 0) - usual.calls.get(name, 0))) / max(moved, 1), 3)
        for name, count in _delta(ended.calls, begun.calls).items()
    }
    return {
        "calls_a_moved_site": {name: one for name, one in sorted(calls.items()) if abs(one) >= 0.01},
        "trips": ended.trips - begun.trips,
        "etcd_calls": _delta(ended.etcd_calls, begun.etcd_calls),
        "etcd_calls_a_s_before": {
            name: round(count / max(begun.at_s - usual.at_s, 1e-9), 2)
            for name, count in _delta(begun.etcd_calls, usual.etcd_calls).items()
        },
        "store_cpu_us_a_moved_site": round(1e6 * (ended.cpu_s["store"] - begun.cpu_s["store"]) / max(moved, 1), 1),
    }


def _progress(seen: Evidence, began_s: float) -> list[dict[str, Any]]:
    """About ten lines of how a start went."""
    samples = [one for one in seen.samples if one.at_s >= began_s]
    lines = []
    for before, one in zip(
        [samples[0], *samples[:: max(1, len(samples) // 10)]], samples[:: max(1, len(samples) // 10)], strict=False
    ):
        seconds = max(one.at_s - before.at_s, 1e-9)
        lines.append(
            {
                "s": round(one.at_s - began_s),
                "sites": sum(node.sites for node in one.reports.values()),
                "unclaimed": sum(node.unclaimed for node in one.reports.values()),
                "requests/s": round((_requests(one) - _requests(before)) / seconds, 1),
                "node MB": " ".join(
                    str(round(one.rss_bytes[name] / MB)) for name in sorted(one.reports) if name in one.rss_bytes
                ),
                "cores": {
                    name: round((cpu_s - before.cpu_s.get(name, 0.0)) / seconds, 2)
                    for name, cpu_s in sorted(one.cpu_s.items())
                },
            }
        )
    return lines


def _requests(sample: scale_watch.Sample) -> int:
    return sum(one.requests for one in sample.reports.values())


def _delta(later: Mapping[str, int], earlier: Mapping[str, int]) -> dict[str, int]:
    found = {name: count - earlier.get(name, 0) for name, count in later.items()}
    return {name: count for name, count in sorted(found.items()) if count}


def _rate(count: int, seconds: float) -> float | None:
    return round(count / seconds, 1) if seconds > 0 else None


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    """First, median, 99 of 100 and last."""
    ordered = sorted(values)
    if not ordered:
        return {}
    last = len(ordered) - 1
    at = {"first": 0, "median": last // 2, "p99": round(0.99 * last), "last": last}
    return {name: round(ordered[index], 2) for name, index in at.items()}


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
