"""What a drill tells: who moved and how quickly, what was repeated or lost, and which promises held. Pure."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from coordinator import demo_report
from shared import audit, config, records

Fault = Literal["kill-lease", "kill", "freeze", "partition", "restart-store"]
ASKED = ("status_", "dns", "connect", "tls", "timeout", "disconnected", "protocol", "headers")
"""Reasons to set a page aside that leave a page record as well: it had been asked for."""
CLAIM_S = 1.0  # P5: a node that gains more than it can claim in this time counts from the claim
LONG_S = 30.0  # a site that is owed a longer pause (Retry-After, back-off) is not waited for
SHOWN_MAX = 10


class Counts(NamedTuple):
    """What a site's record accounts for, of the URLs that were ever accepted for it."""

    seen: int
    accounted: int
    pending: int

    @property
    def missing(self) -> int:
        return max(0, self.seen - self.accounted)


class Times(records.Record):
    """Seconds from the fault to the next owner's first request, of the sites that had something to fetch."""

    judged: int = 0
    first_s: float | None = None
    median_s: float | None = None
    last_s: float | None = None
    slowest_s: float | None = None
    """Of the move that came nearest to its bound, or went furthest beyond it."""
    slowest_bound_s: float | None = None
    over: tuple[str, ...] = ()
    """Sites that were asked later than their bound, or not at all by then."""


class Verdict(records.Record):
    """One promise, whether it held, and what was seen."""

    promise: str
    holds: bool
    text: str


class Report(records.Record):
    """What `drill --json` prints; times in seconds, None is "does not apply"."""

    fault: Fault
    node: str | None
    stores: tuple[str, ...]
    began_ms: int
    healed_ms: int | None
    sites_owned: int
    """Of the node, before; of all nodes where a store was restarted."""
    pending_owned: int
    moved: int
    """Sites that left the node."""
    back: int
    """Sites that it got back before the end."""
    takeover: Times
    bound: str | None
    """P5: what the takeover times are held against."""
    resumed_s: float | None
    """From the heal to the next request of the node; of any node where a store was restarted."""
    requests: int
    """From the fault on."""
    smallest_gap_ratio: float | None
    repeats: int
    lost: int
    promises: tuple[Verdict, ...]
    kept: bool


def counts(look: Mapping[str, object]) -> Counts:
    """From what the frontier's `look` says of a site."""
    aside = look["set_aside"]
    assert isinstance(aside, dict)
    unasked = sum(count for reason, count in aside.items() if not str(reason).startswith(ASKED))
    seen, pending, later, pages = (_number(look, name) for name in ("seen", "pending", "later", "page_records"))
    return Counts(seen, pending + later + pages + unasked, pending)


def lost(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> dict[str, int]:
    """URLs by site that were accepted, and that the record now neither holds nor accounts for (P2).

    At least so many: a page that waits to be tried again is held twice, and may hide another.
    """
    found = {}
    for site in before.keys() | after.keys():
        old, new = before.get(site, Counts(0, 0, 0)), after.get(site, Counts(0, 0, 0))
        gone = max(0, old.seen - new.seen) + max(0, new.missing - old.missing)
        if gone:
            found[site] = gone
    return found


def promised_s(fault: Fault, member: config.Membership) -> float:
    """P5 without the site's own delay."""
    if fault == "kill-lease":
        return CLAIM_S + member.stop_s
    return silence_s(member) + 2.0


def silence_s(member: config.Membership) -> float:
    """A node that is silent for longer is taken for dead, and its sites move."""
    return max(float(member.lease_ttl_s), member.view_lease_s + member.wire_s)


def bound_text(fault: Fault, member: config.Membership) -> str:
    if fault == "kill-lease":
        return f"delay + {CLAIM_S:g} s, and up to {member.stop_s:g} s for what is in flight"
    return (
        f"max(TTL {member.lease_ttl_s:g}, VL + G {member.view_lease_s + member.wire_s:g}) + delay + 2 s"
        f" = delay + {promised_s(fault, member):g} s"
    )


def owed_s(move: demo_report.Move) -> float:
    """How long the next owner must leave the site alone from its claim: its delay, or a pause it asked for."""
    line = move.moved
    delay_s = (line.delay_ms or 0) / 1000
    return delay_s if line.due_ms is None else max(delay_s, (line.due_ms - line.time_ms) / 1000)


def waiting(moves: Iterable[demo_report.Move], *, idle: frozenset[str] = frozenset()) -> list[demo_report.Move]:
    """The moves whose first request is still to come; `idle` are sites with nothing left to ask for."""
    return [
        move
        for move in moves
        if move.first is None and move.moved.pending and owed_s(move) <= LONG_S and move.moved.site not in idle
    ]


def times(
    moves: Sequence[demo_report.Move], *, began_ms: int, now_ms: int, within_s: float, idle: frozenset[str]
) -> Times:
    """Judge the takeover; `within_s` is what was promised beyond what each site is owed."""
    crowded = _crowded(moves)
    taken: list[float] = []
    over: list[str] = []
    slowest: tuple[float, float] | None = None
    for move in moves:
        site, first_ms = move.moved.site or "", None if move.first is None else move.first.first_fetch_ms
        bound_s = within_s + owed_s(move)
        claimed_s = (move.moved.time_ms - began_ms) / 1000
        if (move.moved.to, move.moved.epoch) in crowded:
            bound_s = max(bound_s, claimed_s + owed_s(move) + 2.0)
        if first_ms is None:
            if move in waiting([move], idle=idle) and (now_ms - began_ms) / 1000 > bound_s:
                over.append(site)
            continue
        if not move.moved.pending:
            continue  # it was idle, and asked for when something was found for it
        taken_s = (first_ms - began_ms) / 1000
        taken.append(taken_s)
        if slowest is None or taken_s - bound_s > slowest[0] - slowest[1]:
            slowest = (taken_s, bound_s)
        if taken_s > bound_s:
            over.append(site)
    return Times(
        judged=len(taken),
        first_s=min(taken, default=None),
        median_s=statistics.median(taken) if taken else None,
        last_s=max(taken, default=None),
        slowest_s=slowest[0] if slowest else None,
        slowest_bound_s=slowest[1] if slowest else None,
        over=tuple(over),
    )


def verdicts(
    found: audit.Findings | None, *, gone: Mapping[str, int], seen: int, takeover: Times, moved: int, recovered: str
) -> tuple[Verdict, ...]:
    """One a promise; `recovered` says what has not come back, if anything has not."""
    told = [_audited(found, promise) for promise in ("P1", "P3", "P4")]
    such_as = f", such as {sum(gone.values())} in {', '.join(sorted(gone)[:3])}" if gone else ""
    told.append(
        Verdict(
            promise="P2",
            holds=not gone,
            text=f"nothing lost: {sum(gone.values())} of {seen:,} accepted URLs unaccounted for{such_as}",
        )
    )
    late = f", such as {', '.join(takeover.over[:3])}" if takeover.over else ""
    text = f"taken over in time: {len(takeover.over)} of {moved} sites late{late}" if moved else "no site moved"
    told.append(Verdict(promise="P5", holds=not takeover.over, text=text))
    told.append(Verdict(promise="recovery", holds=not recovered, text=recovered or "all that was broken is back"))
    return tuple(sorted(told, key=lambda verdict: verdict.promise))


def told(report: Report) -> list[str]:
    """The report for a reader."""
    whose = f"{report.node} owned" if report.node else "the nodes owned"
    when = f", {(report.healed_ms - report.began_ms) / 1000:.1f} s long" if report.healed_ms is not None else ""
    what = f"{report.fault}{f' of {report.node}' if report.node else ''}{_names(report.stores)}{when}"
    lines = [
        f"{what}: {whose} {report.sites_owned} sites with {report.pending_owned:,} URLs pending",
        f"  moved      {report.moved} sites to other nodes, {report.back} back since",
    ]
    times = report.takeover
    if times.judged:
        spread = f"first {_seconds(times.first_s)}, median {_seconds(times.median_s)}, last {_seconds(times.last_s)}"
        nearest = f"{_seconds(times.slowest_s)} of {_seconds(times.slowest_bound_s)}"
        lines += [
            f"  takeover   {spread} ({times.judged} sites with something to fetch)",
            f"  bound      {report.bound}; nearest to it {nearest}",
        ]
    if report.resumed_s is not None:
        lines.append(f"  resumed    {report.resumed_s:.1f} s after it was healed")
    ratio = "-" if report.smallest_gap_ratio is None else f"{report.smallest_gap_ratio:.3f} of the delay"
    lines += [
        f"  gaps       smallest {ratio}, of {report.requests:,} requests since",
        f"  repeats    {report.repeats}",
        f"  lost       {report.lost}",
        *(str(demo_report.Verdict(one.holds, f"{one.promise:9}{one.text}")) for one in report.promises),
    ]
    return lines


def _audited(found: audit.Findings | None, promise: str) -> Verdict:
    """What the audit says of one promise; without any request there is nothing to break."""
    if found is None:
        return Verdict(promise=promise, holds=True, text="no request was made")
    broken = [one for one in found.violations if one.promise == promise]
    text = {
        "P1": f"{found.gaps} gaps judged, {len(broken)} too short",
        "P3": f"{found.repeats} pages asked for again, {len(broken)} without a reason",
        "P4": f"{len(broken)} requests out of turn",
    }[promise]
    if broken:
        text += f", such as {broken[0].reason} at {broken[0].site} by {broken[0].node}"
    return Verdict(promise=promise, holds=not broken, text=text)


def _crowded(moves: Sequence[demo_report.Move]) -> set[tuple[str | None, int]]:
    """(node, epoch) of the gains that took longer than a second to claim."""
    claims: dict[tuple[str | None, int], list[int]] = {}
    for move in moves:
        claims.setdefault((move.moved.to, move.moved.epoch), []).append(move.moved.time_ms)
    return {gain for gain, at_ms in claims.items() if max(at_ms) - min(at_ms) > CLAIM_S * 1000}


def _number(look: Mapping[str, object], name: str) -> int:
    value = look[name]
    assert isinstance(value, int)
    return value


def _names(stores: Sequence[str]) -> str:
    return f" ({', '.join(stores)})" if stores else ""


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
