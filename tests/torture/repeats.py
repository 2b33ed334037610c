"""Every page that was asked for again, and what explains it (P3): its crawl lines, and the faults around it.

Pure. A repeat is explained by what became of the request before it; where nothing does, the promise is broken.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from node import politeness
from shared import records
from tests.torture import evidence

FORGOT_S = 2.0  # an append-only file that is synced each second may lack this much
COMMIT_S = 1.5  # a commit takes no longer while the store is there
SETTLES_S = 10.0  # where the store or etcd was broken: until what that held up is done
PER_TENURE_MAX = 2  # of one site: a fetch that was not yet committed, and one in flight
NOBODY = "no fault"

Why = Literal[
    "aborted by a move",
    "found late by its own node, and reset",
    "failed and tried again",
    "in flight at a crash, freeze or cut",
    "uncommitted: the store was away, or it was fenced",
    "the store forgot",
    "unexplained",
]
ABORTED: Why = "aborted by a move"
LATE: Why = "found late by its own node, and reset"
FAILED: Why = "failed and tried again"
IN_FLIGHT: Why = "in flight at a crash, freeze or cut"
UNCOMMITTED: Why = "uncommitted: the store was away, or it was fenced"
FORGOT: Why = "the store forgot"
UNEXPLAINED: Why = "unexplained"
OF_ITS_NODE = frozenset({"crash", "killed_lease", "planned", "silent", "clock"})
OF_ALL = frozenset({"etcd", "store", "slow"})
AUTHORITY = frozenset({"etcd", "silent", "killed_lease", "planned", "clock"})  # they can end a node's authority
CUTS = ("cut-", "swizzled", "answers-lost", "etcd-answers-late")  # the way of a node to etcd or the store
UNLOGGED = ("freeze", "strobe", "swizzled", "cut-web", "all-nodes-", "id-twice")  # beside a process that was killed


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """A page asked for again, and the request before."""

    site: str
    url: str
    why: Why
    fault: str
    """What it is counted under."""
    fault_at_s: float | None
    boot_s: float
    node: str
    before_s: float
    before_node: str
    outcome: str | None
    """Of the request before; None where its node did not live to log it."""


class TooMany(msgspec.Struct, frozen=True, kw_only=True):
    """One site paid more for one fault than P3 allows."""

    site: str
    fault: str
    fault_at_s: float
    repeats: int
    allowed: int


@dataclass(frozen=True, slots=True)
class _Pair:
    """A request for a page, and the one before it."""

    before: evidence.Request
    after: evidence.Request
    line: records.CrawlLine | None
    """Of the one before."""
    again: records.CrawlLine | None

    @property
    def ended_s(self) -> float:
        """When the answer to the one before was there, as far as is known."""
        return self.before.arrived_s + (self.line.ms / 1000 if self.line else 0.0)

    @property
    def moved(self) -> bool:
        """Whether the site had changed hands in between, or may have."""
        if self.line is None or self.again is None:
            return True
        return self.line.tenure != self.again.tenure


def all_of(run: evidence.Evidence) -> list[Repeat]:
    """In the origin's order."""
    return [_judged(run, pair) for pair in _pairs(run)]


def too_many(run: evidence.Evidence, found: list[Repeat]) -> list[TooMany]:
    """Where a site had more uncommitted fetches under one fault than its tenures in that time explain."""
    counts = Counter(
        (one.site, one.fault, one.fault_at_s, one.why == FORGOT)
        for one in found
        if one.why in {IN_FLIGHT, UNCOMMITTED, FORGOT} and one.fault_at_s is not None
    )
    broken = []
    for (site, name, at_s, forgot), count in counts.items():
        assert at_s is not None
        fault = next(one for one in run.faults if one.at_s == at_s and one.name == name)
        moves = sum(
            fault.touches(run.boot_s(move.time_ms), run.boot_s(move.time_ms), after_s=SETTLES_S)
            for move in run.moves.get(site, [])
        )
        allowed = PER_TENURE_MAX * max(1, moves)
        if forgot:
            allowed += math.ceil(FORGOT_S / run.run.delay_s)
        if count > allowed:
            broken.append(TooMany(site=site, fault=name, fault_at_s=at_s, repeats=count, allowed=allowed))
    return broken


def _pairs(run: evidence.Evidence) -> Iterator[_Pair]:
    last: dict[str, int] = {}
    for i, request in enumerate(run.requests):
        if request.robots:
            continue
        before = last.get(request.url)
        last[request.url] = i
        if before is not None:
            yield _Pair(run.requests[before], request, run.line_of.get(before), run.line_of.get(i))


def _judged(run: evidence.Evidence, pair: _Pair) -> Repeat:
    why, fault = _explained(run, pair)
    return Repeat(
        site=pair.after.site,
        url=pair.after.url,
        why=why,
        fault=fault.name if fault else NOBODY,
        fault_at_s=fault.at_s if fault else None,
        boot_s=pair.after.boot_s,
        node=pair.after.node,
        before_s=pair.before.boot_s,
        before_node=pair.before.node,
        outcome=pair.line.outcome if pair.line else None,
    )


def _explained(run: evidence.Evidence, pair: _Pair) -> tuple[Why, evidence.Fault | None]:
    line = pair.line
    if line is not None and line.outcome.removeprefix("failed:") in politeness.OWN_DOING:
        ended = _nearest(run, pair, lambda fault: fault.kind in AUTHORITY and _touches_node(fault, pair))
        moved = _move_near(run, pair)
        if not (ended or moved) and _was_late(run, pair):
            return LATE, _nearest(run, pair)
        return (ABORTED, ended or _nearest(run, pair)) if ended or moved else (UNEXPLAINED, None)
    if line is not None and not evidence.finished(line):
        fault = _nearest(run, pair, lambda fault: fault.kind == "slow" or pair.before.node in fault.victims)
        return (FAILED, fault) if fault else (UNEXPLAINED, None)
    own = _fault_of_node(run, pair)
    if line is None:  # only a process that ended writes no line
        unlogged = own is not None and (own.kind == "crash" or own.name.startswith(UNLOGGED))
        found: tuple[Why, evidence.Fault | None] = (IN_FLIGHT, own if unlogged else None)
    else:
        found = _uncommitted(run, pair, own)
    return found if found[1] else (UNEXPLAINED, None)


def _uncommitted(run: evidence.Evidence, pair: _Pair, own: evidence.Fault | None) -> tuple[Why, evidence.Fault | None]:
    """Why an answer that had come did not end the visit; without a fault it should have."""
    forgetful = [
        fault
        for fault in run.faults
        if fault.kind == "store"
        and _strikes_all(fault)
        and fault.at_s - FORGOT_S <= pair.ended_s <= max(fault.at_s, fault.until_s)
    ]
    if own and pair.moved:
        return (IN_FLIGHT if own.kind in {"crash", "silent"} else UNCOMMITTED), own
    if run.run.strict and not pair.moved:
        return UNEXPLAINED, None  # what was answered cannot have been forgotten
    if not run.run.strict and (
        forgetful or not pair.moved
    ):  # a node knows what it has committed: only the store can have lost it
        return FORGOT, forgetful[-1] if forgetful else None
    away = [
        fault
        for fault in run.faults
        if fault.kind in OF_ALL
        and (_strikes_all(fault) or pair.before.node in fault.victims)
        and fault.touches(pair.before.arrived_s, pair.ended_s + SETTLES_S, after_s=SETTLES_S)
    ]
    return UNCOMMITTED, away[-1] if away else None


def _strikes_all(fault: evidence.Fault) -> bool:
    """A store itself, not the way of some nodes to it."""
    return all(name.startswith(evidence.STORES) for name in fault.victims)


def _touches_node(fault: evidence.Fault, pair: _Pair) -> bool:
    return _strikes_all(fault) or pair.before.node in fault.victims


def _was_late(run: evidence.Evidence, pair: _Pair) -> bool:
    """The named exception of P1: a node that stood still in mid-step finds it out, and says so."""
    return any(
        node == pair.before.node
        and pair.before.arrived_s - COMMIT_S <= run.boot_s(at_s * 1000) <= pair.ended_s + COMMIT_S
        for node, at_s in run.late
    )


def _move_near(run: evidence.Evidence, pair: _Pair) -> bool:
    """Whether the site changed hands about then; its line may come a claim's wait later."""
    start_s, end_s = pair.before.arrived_s - SETTLES_S, pair.ended_s + SETTLES_S
    return any(start_s <= run.boot_s(move.time_ms) <= end_s for move in run.moves.get(pair.after.site, []))


def _settles_s(run: evidence.Evidence, pair: _Pair) -> float:
    """For how long after its answer, or after a heal, the earlier request's commit can have been on the way."""
    held_up = any(
        (fault.kind in {"etcd", "store"} or fault.name.startswith(CUTS))
        and _touches_node(fault, pair)
        and fault.touches(pair.before.arrived_s, pair.ended_s + COMMIT_S, after_s=SETTLES_S)
        for fault in run.faults
    )
    return SETTLES_S if held_up else COMMIT_S


def _fault_of_node(run: evidence.Evidence, pair: _Pair) -> evidence.Fault | None:
    """A fault of the earlier request's node while that request, or its commit, can have been on the way."""
    settles_s = _settles_s(run, pair)
    end_s = min(pair.after.arrived_s, pair.ended_s + settles_s)
    found = [
        fault
        for fault in run.faults
        if fault.kind in OF_ITS_NODE
        and pair.before.node in fault.victims
        and fault.touches(pair.before.arrived_s, end_s, after_s=settles_s if fault.kind != "crash" else 0.0)
    ]
    return found[-1] if found else None


def _nearest(
    run: evidence.Evidence, pair: _Pair, fits: Callable[[evidence.Fault], bool] = lambda _: True
) -> evidence.Fault | None:
    """The last fault near the earlier request that fits."""
    found = [
        fault
        for fault in run.faults
        if fits(fault)
        and fault.touches(pair.before.arrived_s, max(pair.ended_s, pair.before.arrived_s), after_s=SETTLES_S)
    ]
    return found[-1] if found else None
