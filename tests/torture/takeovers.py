"""How long each fault's sites waited for their next owner's first request (P5), from the handoff log and the origin's.

Pure. A site counts when the victim owned it and it had pending URLs; its first move away is the one that is timed.
"""

import statistics
from collections.abc import Iterator
from typing import Literal

import msgspec

from shared import records
from tests.torture import evidence

CUT_S = 5.0  # a request in flight is cut after this long
LONGEST_S = 60.0  # no request takes longer (limits.total_s)
DEATH_S, PLANNED_S, SILENT_S = 2.0, 1.0, 1.0  # what P5 adds to the waits of its rules
LAPSE_S = 1.0  # etcd looks for ended leases twice a second; the view without it is proposed at once
TOLD_S = 0.3  # by then the victim of a killed lease or a drain starts nothing new
COMMAND_S = 5.0  # `crawlring kill-lease` takes less
HEARD = frozenset(
    {"etcd-answers-late", "answers-lost", "confirms-repeated"}
)  # its beats still arrive, late or not told
FIRST_MS = 100  # a first request and its claim's line, by two readings of the clock

From = Literal["fault", "view"]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """One site that changed hands."""

    site: str
    node: str
    to: str
    claimed_s: float
    """After the fault, as all that follow."""
    asked_s: float | None
    """None: moved on, or the run ended, before the next owner asked."""
    bound_s: float
    counted_from: From = "fault"
    """view: the victim was alive and held its place for longer, so that P5 counts from the view that took it."""

    @property
    def over(self) -> bool:
        return self.asked_s is not None and self.asked_s > self.bound_s


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """All sites of one fault."""

    fault: str
    kind: evidence.Kind
    at_s: float
    victims: tuple[str, ...]
    moved: int
    """Sites with pending URLs that went from a victim to another node."""
    asked: int
    first_s: float | None = None
    median_s: float | None = None
    last_s: float | None = None
    bound_s: float | None = None
    """Of the site that was nearest to it, or furthest over."""
    over: int = 0
    worst: Taken | None = None


def all_of(run: evidence.Evidence) -> list[Takeover]:
    """One for each fault with victims."""
    views = _views(run)
    return [_takeover(fault, list(_taken(run, fault, views))) for fault in run.faults if fault.victims]


def bound_s(run: evidence.Run, kind: evidence.Kind, *, delay_s: float, in_flight_s: float = 0.0) -> float:
    """P5's bound from the fault to the next owner's first request."""
    if kind in {"killed_lease", "planned"}:
        return delay_s + PLANNED_S + in_flight_s
    whole_s = run.gone_s + delay_s + DEATH_S
    return whole_s + run.ttl_s if kind == "etcd" else whole_s


def _takeover(fault: evidence.Fault, taken: list[Taken]) -> Takeover:
    asked = sorted(one.asked_s for one in taken if one.asked_s is not None)
    worst = max(
        (one for one in taken if one.asked_s is not None),
        key=lambda one: (one.asked_s or 0.0) - one.bound_s,
        default=None,
    )
    return Takeover(
        fault=fault.name,
        kind=fault.kind,
        at_s=fault.at_s,
        victims=fault.victims,
        moved=len(taken),
        asked=len(asked),
        first_s=asked[0] if asked else None,
        median_s=statistics.median(asked) if asked else None,
        last_s=asked[-1] if asked else None,
        bound_s=worst.bound_s if worst else None,
        over=sum(one.over for one in taken),
        worst=worst,
    )


def _views(run: evidence.Evidence) -> dict[int, float]:
    """When each view was put: by its line, or by its first move where its proposer did not live to write one."""
    found: dict[int, float] = {}
    for entry in run.handoffs:
        if entry.kind in {"epoch", "moved"}:
            at_s = run.boot_s(entry.time_ms)
            found[entry.epoch] = min(found.get(entry.epoch, at_s), at_s)
    return found


def _taken(run: evidence.Evidence, fault: evidence.Fault, views: dict[int, float]) -> Iterator[Taken]:
    longest_s = bound_s(run.run, fault.kind, delay_s=run.run.delay_s, in_flight_s=CUT_S) + run.run.ttl_s
    for site, moves in run.moves.items():
        after = [i for i, move in enumerate(moves) if run.boot_s(move.time_ms) >= fault.at_s]
        if not after:
            continue
        i = after[0]
        move = moves[i]
        late = run.boot_s(move.time_ms) > max(fault.at_s, fault.until_s) + longest_s
        given = move.cause in {"joined", "override"}  # to somebody who was in time to get it, whatever was broken
        if late or given or move.from_node not in fault.victims or move.from_node == move.to or not move.pending:
            continue
        ends_ms = moves[i + 1].time_ms if i + 1 < len(moves) else float("inf")
        yield _timed(run, fault, move, site=site, ends_s=run.boot_s(ends_ms), view_s=views[move.epoch])


def _timed(
    run: evidence.Evidence, fault: evidence.Fault, move: records.Handoff, *, site: str, ends_s: float, view_s: float
) -> Taken:
    """`view_s`: when the view was put that took the site from the victim."""
    struck_s = _struck_s(run, fault, view_s)
    claimed_s = run.boot_s(move.time_ms)
    asked_s = next(
        (
            run.requests[i].boot_s - struck_s
            for i in run.by_site.get(site, [])
            if run.requests[i].node == move.to and claimed_s - FIRST_MS / 1000 <= run.requests[i].boot_s < ends_s
        ),
        None,
    )
    delay_s = max(run.run.delay_s, (move.delay_ms or 0) / 1000)
    in_flight_s = _in_flight_s(run, fault, struck_s)
    bound = bound_s(run.run, fault.kind, delay_s=delay_s, in_flight_s=in_flight_s)
    counted_from: From = "fault"
    if asked_s is not None and asked_s > bound and _held_on(run, fault, view_s):
        counted_from = "view"
        bound = view_s - struck_s + _from_view_s(run.run, fault.kind) + delay_s
        if fault.kind == "planned":
            bound += _in_flight_s(run, fault, view_s)
    if move.due_ms is not None and move.due_ms - move.time_ms > delay_s * 1000 + FIRST_MS:
        bound = max(bound, run.boot_s(move.due_ms) - struck_s + PLANNED_S)  # a back-off, say, moves with the site
    return Taken(
        site=site,
        node=move.from_node or "",
        to=move.to or "",
        claimed_s=claimed_s - struck_s,
        asked_s=asked_s,
        bound_s=bound,
        counted_from=counted_from,
    )


def _struck_s(run: evidence.Evidence, fault: evidence.Fault, view_s: float) -> float:
    """When it struck: a command that kills a lease has to start first; its kill is seen, and proposed, at once."""
    if fault.kind != "killed_lease":
        return fault.at_s
    if fault.struck_s is not None:
        return min(fault.struck_s, view_s)
    return view_s if view_s - fault.at_s <= COMMAND_S else fault.at_s


def _held_on(run: evidence.Evidence, fault: evidence.Fault, view_s: float) -> bool:
    """Whether a victim was alive, and a member, for longer than one that was struck dead could have been."""
    if fault.kind in {"crash", "killed_lease"}:
        return False
    if fault.name in HEARD:
        return True
    if fault.kind != "planned":
        return view_s - fault.at_s > run.run.ttl_s + LAPSE_S
    # Of several that leave in turns, one that still asks has not been told yet.
    return any(one.node in fault.victims for one in run.between(fault.at_s + PLANNED_S, view_s))


def _from_view_s(run: evidence.Run, kind: evidence.Kind) -> float:
    return PLANNED_S if kind == "planned" else run.view_lease_s + run.wire_s + SILENT_S


def _in_flight_s(run: evidence.Evidence, fault: evidence.Fault, at_s: float) -> float:
    """For how much longer a request of the victim, on the way when it was to leave, was, or would have been.

    Of whichever site: a node acknowledges a view when nothing is on any more on all that it loses.
    """
    longest_s = 0.0
    for i in run.indexes(at_s - LONGEST_S, at_s + TOLD_S):
        request = run.requests[i]
        if request.node in fault.victims:
            line = run.line_of.get(i)
            end_s = request.arrived_s + (line.ms / 1000 if line else CUT_S)
            longest_s = max(longest_s, end_s - at_s)
    return min(longest_s, CUT_S)
