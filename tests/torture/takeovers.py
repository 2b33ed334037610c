"""How long each fault's sites waited for their next owner's first request (P5), from the handoff log and the origin's.

Pure. Where a victim is bound to lose its sites, each that it owned and that had something to ask is timed, whether a
move of it ever came or not. Of a victim that may keep its place those count that a view took: their first move away.
"""

import re
import statistics
from collections.abc import Iterator
from typing import Literal

import msgspec

from shared import records
from tests.torture import evidence

CUT_S = 5.0  # a request in flight is cut after this long
LONGEST_S = 60.0  # no request takes longer (limits.total_s)
DEATH_S, PLANNED_S, JOINED_S, SILENT_S = 2.0, 1.0, 2.0, 1.0  # what P5 adds to the waits of its rules
LAPSE_S = 1.5  # etcd looks for ended leases twice a second; the view without it is proposed at once
STARTS_S = 10.0  # until all work again, where nobody was left to take over
KILLED_S = 0.5  # later than this after its death no request of a process arrives
TOLD_S = 0.3  # by then the victim of a killed lease or a drain starts nothing new
COMMAND_S = 5.0  # `crawlring kill-lease` takes less
HEARD = frozenset(
    {"etcd-answers-late", "answers-lost", "confirms-repeated"}
)  # its beats still arrive, late or not told
LEASE_ENDS = frozenset({"cut-etcd", "cut-etcd-out-only", "cut-both", "keepalives-lost"})
FIRST_MS = 100  # a first request and its claim's line, by two readings of the clock

From = Literal["fault", "view"]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """One site that changed hands."""

    site: str
    node: str
    to: str
    claimed_s: float | None
    """After the fault, as all that follow; None: no move of it was ever logged."""
    asked_s: float | None
    """None: moved on, or the run ended, before the next owner asked."""
    bound_s: float
    late: str = ""
    """What came too late, or never, beside the first request."""
    counted_from: From = "fault"
    """view: the victim was alive and held its place for longer, so that P5 counts from the view that took it."""

    @property
    def over(self) -> bool:
        return bool(self.late) or (self.asked_s is not None and self.asked_s > self.bound_s)

    @property
    def beyond_s(self) -> float:
        """How far over its bound, or, below 0, within it."""
        return float("inf") if self.asked_s is None else self.asked_s - self.bound_s


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
    judged: int = 0
    """Those that were asked for, and those that nobody asked for in time."""
    idle: int = 0
    """Sites that the victim was bound to lose, with nothing left to ask."""
    worst: Taken | None = None


def all_of(run: evidence.Evidence) -> list[Takeover]:
    """One for each fault with victims."""
    views = _views(run)
    return [_takeover(run, fault, views) for fault in run.faults if fault.victims]


def ends_lease(run: evidence.Run, fault: evidence.Fault) -> bool:
    """Whether nothing that a live victim does can keep its lease: etcd hears no keep-alive for longer than the TTL."""
    if _everybody(fault):
        return False  # nobody is left to propose the view
    silent_s = fault.lasts_s
    frozen = re.search(r"frozen ([0-9.]+) s later", fault.detail)  # cut-web-frozen
    if frozen:
        silent_s -= float(frozen[1])
    elif fault.name == "confirms-lost":
        silent_s -= run.view_lease_s  # so long after its last confirm it keeps its lease alive
    elif not (fault.name in LEASE_ENDS or fault.name.startswith("freeze-")):
        return False
    return silent_s > run.ttl_s + LAPSE_S


def must_lose(run: evidence.Run, fault: evidence.Fault) -> bool:
    """Whether the victim was bound to lose all that it owned."""
    if fault.kind in {"crash", "killed_lease"} or (fault.kind == "planned" and fault.name == "term"):
        return True
    if fault.kind == "silent" and fault.name == "all-nodes-frozen":
        return fault.lasts_s > run.ttl_s + LAPSE_S
    return fault.kind == "silent" and ends_lease(run, fault)


def _everybody(fault: evidence.Fault) -> bool:
    return fault.name.startswith("all-nodes-")


def bound_s(run: evidence.Run, kind: evidence.Kind, *, delay_s: float, in_flight_s: float = 0.0) -> float:
    """P5's bound from the fault to the next owner's first request."""
    if kind in {"killed_lease", "planned"}:
        return delay_s + PLANNED_S + in_flight_s
    whole_s = run.gone_s + delay_s + DEATH_S
    return whole_s + run.ttl_s if kind == "etcd" else whole_s


def _takeover(run: evidence.Evidence, fault: evidence.Fault, views: dict[int, float]) -> Takeover:
    taken: list[Taken] = []
    idle = 0
    lost = _owned(run, fault) if must_lose(run.run, fault) else {}
    for site, victim in lost.items():
        one = _lost(run, fault, site, victim, views)
        if one is None:
            idle += 1
        else:
            taken.append(one)
    taken += (one for one in _taken(run, fault, views) if one.site not in lost)
    asked = sorted(one.asked_s for one in taken if one.asked_s is not None)
    judged = [one for one in taken if one.over or one.asked_s is not None]
    worst = max(judged, key=lambda one: (one.over, one.beyond_s), default=None)
    return Takeover(
        fault=fault.name,
        kind=fault.kind,
        at_s=fault.at_s,
        victims=fault.victims,
        moved=sum(one.claimed_s is not None for one in taken),
        asked=len(asked),
        first_s=asked[0] if asked else None,
        median_s=statistics.median(asked) if asked else None,
        last_s=asked[-1] if asked else None,
        bound_s=worst.bound_s if worst else None,
        over=sum(one.over for one in taken),
        judged=len(judged),
        idle=idle,
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


def _owned(run: evidence.Evidence, fault: evidence.Fault) -> dict[str, str]:
    """The sites that a victim owned at the strike, and which: by their last move, or request, before it."""
    found: dict[str, str] = {}
    for site, indexes in run.by_site.items():
        last = next((run.requests[i] for i in reversed(indexes) if run.requests[i].arrived_s < fault.at_s), None)
        move = next((one for one in reversed(run.moves.get(site, [])) if run.boot_s(one.time_ms) < fault.at_s), None)
        owner = last.node if last else None
        if move is not None and (last is None or run.boot_s(move.time_ms) > last.arrived_s):
            owner = move.to
        if owner in fault.victims:
            found[site] = owner
    return found


def _lost(
    run: evidence.Evidence, fault: evidence.Fault, site: str, victim: str, views: dict[int, float]
) -> Taken | None:
    """A site that its owner was bound to lose; None: there was nothing left to ask, or no time to."""
    moves = run.moves.get(site, [])
    move = next((one for one in moves if run.boot_s(one.time_ms) >= fault.at_s), None)
    seen_s = _away_s(run, fault, victim)
    view_s = min((at_s for at_s in (seen_s, views[move.epoch] if move else None) if at_s is not None), default=None)
    struck_s = _struck_s(run, fault, view_s) if view_s is not None else fault.struck_s or fault.at_s
    asked_at_s = _asked_anew_s(run, fault, site, victim, struck_s)
    asked_s = None if asked_at_s is None else asked_at_s - struck_s
    bound, counted_from = _bound(run, fault, move, site=site, view_s=view_s, struck_s=struck_s, asked_s=asked_s)
    # It may move on, before its next owner was due to ask or had claimed it, to one that has joined: a move with a
    # bound of its own.
    first = moves.index(move) + (move.cause == "lease_lost") if move is not None else len(moves)
    for again in moves[first:]:
        view_again_s = views[again.epoch] - struck_s
        if view_again_s > bound or (asked_s is not None and view_again_s > asked_s):
            break
        bound = max(bound, view_again_s + max(run.run.delay_s, (again.delay_ms or 0) / 1000) + JOINED_S)
    ends_s = struck_s + bound
    late = ""
    if asked_s is None or asked_s > bound:
        moved_in_time = move is not None and run.boot_s(move.time_ms) <= ends_s
        if (moved_in_time and move is not None and move.pending == 0) or not run.open(site, fault.at_s, ends_s):
            return None
        if ends_s > run.run.ended_s:
            return None
        late = "nobody asked in time" if moved_in_time else "no move in time"
    if ends_lease(run.run, fault) and view_s is not None and view_s - fault.at_s > _view_due_s(run.run, fault):
        late = late or f"the view that took it came after {view_s - fault.at_s:.2f} s"
    return Taken(
        site=site,
        node=victim,
        to=(move.to or "") if move else "",
        claimed_s=run.boot_s(move.time_ms) - struck_s if move else None,
        asked_s=asked_s,
        bound_s=bound,
        late=late,
        counted_from=counted_from,
    )


def _view_due_s(run: evidence.Run, fault: evidence.Fault) -> float:
    """By when after the strike the view without a victim has to be there."""
    frozen = re.search(r"frozen ([0-9.]+) s later", fault.detail)
    later_s = float(frozen[1]) if frozen else run.view_lease_s if fault.name == "confirms-lost" else 0.0
    return run.ttl_s + LAPSE_S + later_s


def _away_s(run: evidence.Evidence, fault: evidence.Fault, victim: str) -> float | None:
    """When the first view without the victim was put, by its line."""
    times = (
        run.boot_s(entry.time_ms)
        for entry in run.handoffs
        if entry.kind == "epoch" and victim in (entry.before or ()) and victim not in (entry.after or ())
    )
    return min((at_s for at_s in times if at_s >= fault.at_s), default=None)


def _asked_anew_s(
    run: evidence.Evidence, fault: evidence.Fault, site: str, victim: str, struck_s: float
) -> float | None:
    """The first request after the strike that is not of the tenure that the strike ended."""
    indexes = run.by_site.get(site, [])
    lines = [run.line_of.get(i) for i in indexes if run.requests[i].arrived_s < struck_s]
    tenure = max((line.tenure for line in lines if line is not None and line.node == victim), default=0)
    for i in indexes:
        request = run.requests[i]
        if request.arrived_s < struck_s:
            continue
        line = run.line_of.get(i)
        reborn = fault.kind == "crash" and request.arrived_s > struck_s + KILLED_S
        if request.node != victim or reborn or (tenure and line is not None and line.tenure > tenure):
            return request.boot_s
    return None


def _taken(run: evidence.Evidence, fault: evidence.Fault, views: dict[int, float]) -> Iterator[Taken]:
    """Sites that a view took from a victim that may as well have kept its place."""
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
    bound, counted_from = _bound(run, fault, move, site=site, view_s=view_s, struck_s=struck_s, asked_s=asked_s)
    return Taken(
        site=site,
        node=move.from_node or "",
        to=move.to or "",
        claimed_s=claimed_s - struck_s,
        asked_s=asked_s,
        bound_s=bound,
        counted_from=counted_from,
    )


def _bound(
    run: evidence.Evidence,
    fault: evidence.Fault,
    move: records.Handoff | None,
    *,
    site: str,
    view_s: float | None,
    struck_s: float,
    asked_s: float | None,
) -> tuple[float, From]:
    """How long after the strike the next owner's first request may come, and from what that is counted."""
    delay_s = max(run.run.delay_s, (move.delay_ms or 0) / 1000 if move else run.owed_s.get(site, 0.0))
    in_flight_s = _in_flight_s(run, fault, struck_s)
    bound = bound_s(run.run, fault.kind, delay_s=delay_s, in_flight_s=in_flight_s)
    if _everybody(fault):
        bound += fault.lasts_s + STARTS_S
    counted_from: From = "fault"
    late = asked_s is None or asked_s > bound
    if late and view_s is not None and _held_on(run, fault, view_s):
        counted_from = "view"
        bound = view_s - struck_s + _from_view_s(run.run, fault.kind) + delay_s
        if fault.kind == "planned":
            bound += _in_flight_s(run, fault, view_s)
    if move and move.due_ms is not None and move.due_ms - move.time_ms > delay_s * 1000 + FIRST_MS:
        bound = max(bound, run.boot_s(move.due_ms) - struck_s + PLANNED_S)  # a back-off, say, moves with the site
    return bound, counted_from


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
    if fault.name != "confirms-lost" and ends_lease(run.run, fault):
        return False  # etcd ends its lease whatever it does
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
