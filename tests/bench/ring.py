"""`python -m tests.bench.ring`: our ring beside uhashring: build, join, leave, look-up, balance, what moves.

Interleaved: each round times every operation of each contender, so that all saw the same machine; a ratio is that of
one round. Times are CPU. uhashring is imported into this process from its own environment.
"""

import argparse
import functools
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol

import xxhash

from shared import placement, records, ring
from tests.bench import environments, readings, report

SITES = [f"site-{number}.example.com" for number in range(10_000)]
JOINER = "joiner"
NAME_SETS = 21  # sets of node names, over which balance and moves are medians
TRIES = 3  # the least of so many counts in a round: what else the machine does only ever adds
VNODES = (150, 256, 512, 1024, 2048)
STEPS = ("build ms", "join ms", "leave ms", "look-up us", "known us")


class Contender(Protocol):
    """A ring that can be timed: `join` and `leave` are one node more than it has, and that one less."""

    name: str

    def build(self) -> None: ...
    def join(self) -> None: ...
    def leave(self) -> None: ...
    def look_up(self) -> Callable[[str], object]: ...
    def known(self) -> Callable[[str], object]: ...


class Ours:
    """A view's placement, made from the one before."""

    def __init__(self, nodes: Sequence[str], vnodes: int, algorithm: str) -> None:
        self.name = f"crawlring {algorithm}, {vnodes} points"
        self._few = _view(nodes, f"{algorithm}/{vnodes}")
        self._more = _view([*nodes, JOINER], f"{algorithm}/{vnodes}")
        self._before = placement.Placement.of(self._few, 1)
        self._after = placement.Placement.of(self._more, 2, self._before)

    def build(self) -> None:
        placement.Placement.of(self._few, 1)

    def join(self) -> None:
        placement.Placement.of(self._more, 2, self._before)

    def leave(self) -> None:
        placement.Placement.of(self._few, 3, self._after)

    def look_up(self) -> Callable[[str], object]:
        return self._before.ring.owner

    def known(self) -> Callable[[str], object]:
        deque(map(self._before.owner, SITES), maxlen=0)
        return self._before.owner


class Uhashring:
    """Its default of 160 points; it changes in place, and remembers no key."""

    def __init__(self, nodes: Sequence[str], made: Callable[..., Any]) -> None:
        self.name = "uhashring"
        self._nodes, self._made = list(nodes), made
        self._ring = made(nodes=self._nodes)

    def build(self) -> None:
        self._made(nodes=self._nodes)

    def join(self) -> None:
        self._ring.add_node(JOINER)

    def leave(self) -> None:
        self._ring.remove_node(JOINER)

    def look_up(self) -> Callable[[str], object]:
        look_up: Callable[[str], object] = self._ring.get_node
        return look_up

    known = look_up


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    theirs = _uhashring()
    machine = {**readings.machine(), "uhashring": environments.versions("uhashring"), "xxhash": xxhash.VERSION}
    print("".join(f"{key}: {value}\n" for key, value in machine.items()))
    times = [row for nodes in args.nodes for row in _times(nodes, args.vnodes, args.rounds, theirs)]
    print(_times_table(times))
    shares = [row for nodes in args.balance for row in _shares(nodes, theirs)]
    print(_shares_table(shares))
    ranges = [_ranges(nodes, vnodes) for nodes in args.nodes for vnodes in (256, 1024)]
    print(report.table(tuple(ranges[0]), [[f"{value:,}" for value in row.values()] for row in ranges]))
    if args.json:
        report.write_json(args.json, "ring", [*times, *shares, *ranges], machine)
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m tests.bench.ring", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved repeats (default %(default)s)")
    parser.add_argument("--nodes", type=numbers, default=[16, 64, 1024], help="sizes to time (default 16,64,1024)")
    parser.add_argument("--balance", type=numbers, default=[16, 64], help="sizes to weigh (default 16,64)")
    parser.add_argument("--vnodes", type=int, default=1024, help="points of a node of ours (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the results for other programs")
    return parser.parse_args(argv)


def _uhashring() -> Callable[..., Any] | None:
    try:
        found = environments.python_of("uhashring").parent.parent.glob("lib/python*/site-packages")
    except environments.NotInstalled as error:
        print(f"uhashring is not run: {error}", file=sys.stderr)
        return None
    sys.path.extend(map(str, found))
    from uhashring import HashRing  # noqa: PLC0415 - there only now

    made: Callable[..., Any] = HashRing
    return made


# --- times --------------------------------------------------------------------------------------------------------


def _times(nodes: int, vnodes: int, rounds: int, theirs: Callable[..., Any] | None) -> list[dict[str, Any]]:
    """A row for each contender at one size: the rounds of each step, and the ratios of uhashring to ours."""
    names = _names(0, nodes)
    contenders: list[Contender] = [Ours(names, vnodes, "xxh3-64")]
    if theirs:
        contenders.append(Uhashring(names, theirs))
    if nodes <= 64:  # the others differ by their hash alone
        contenders += [Ours(names, vnodes, algorithm) for algorithm in ("sha1-64", "md5-32")]
    taken = [[_steps(one) for one in contenders] for _ in range(rounds)]
    rows = []
    for at, contender in enumerate(contenders):
        mine = [{step: both[at][step] for step in STEPS} for both in taken]
        ratios = [{step: both[at][step] / both[0][step] for step in STEPS} for both in taken]
        rows.append({"what": "times", "nodes": nodes, "contender": contender.name, "rounds": mine, "over ours": ratios})
    return rows


def _steps(contender: Contender) -> dict[str, float]:
    look_up, known = contender.look_up(), contender.known()
    a_site = 1_000 / len(SITES)
    joins, leaves = zip(*((_cpu_ms(contender.join), _cpu_ms(contender.leave)) for _ in range(TRIES)), strict=True)
    return {
        "build ms": _cpu_ms(contender.build),
        "join ms": min(joins),
        "leave ms": min(leaves),
        # A deque of no length: the loop is the interpreter's, and adds next to nothing to what is measured.
        "look-up us": a_site * min(_cpu_ms(lambda: deque(map(look_up, SITES), maxlen=0)) for _ in range(TRIES)),
        "known us": a_site * min(_cpu_ms(lambda: deque(map(known, SITES), maxlen=0)) for _ in range(TRIES)),
    }


def _cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1e6


def _times_table(rows: Sequence[Mapping[str, Any]]) -> str:
    def cells(row: Mapping[str, Any]) -> Iterator[str]:
        yield f"{row['contender']}, {row['nodes']} nodes"
        for step in STEPS:
            text = str(report.spread(one[step] for one in row["rounds"]))
            ratio = statistics.median(one[step] for one in row["over ours"])
            yield text if ratio == 1 else f"{text} {ratio:.1f}x"

    return report.table(("x: times ours of that size", *STEPS), map(list, map(cells, rows)))


# --- balance ------------------------------------------------------------------------------------------------------


def _shares(nodes: int, theirs: Callable[..., Any] | None) -> Iterator[dict[str, Any]]:
    """How even each way to place sites is, and how much a join moves, each a value for each set of names."""
    ways: dict[str, Callable[[Sequence[str], Sequence[str]], list[str]]] = {
        f"crawlring, {vnodes} points": functools.partial(_ring_owners, vnodes) for vnodes in VNODES
    }
    ways |= {"rendezvous": _rendezvous_owners, "jump": _jump_owners}
    if theirs:
        ways["uhashring"] = lambda names, sites: list(map(theirs(nodes=list(names)).get_node, sites))
    for name, owners_of in ways.items():
        busiest, moved = [], []
        for number in range(NAME_SETS):
            names, sites = _names(number, nodes), [f"{number}-{site}" for site in SITES]
            before, after = owners_of(names, sites), owners_of([*names, f"{JOINER}-{number}"], sites)
            busiest.append(max(Counter(before).values()) * nodes / len(sites))
            moved.append(sum(map(str.__ne__, before, after)) * (nodes + 1) / len(sites))
        yield {"what": "shares", "nodes": nodes, "contender": name, "busiest": busiest, "moved": moved}


def _ring_owners(vnodes: int, names: Sequence[str], sites: Sequence[str]) -> list[str]:
    circle = ring.Ring.build(dict.fromkeys(names, 1.0), algorithm="xxh3-64", vnodes=vnodes)
    return [circle.owner(site) or "" for site in sites]


def _rendezvous_owners(names: Sequence[str], sites: Sequence[str]) -> list[str]:
    """Thaler and Ravishankar's: the node whose hash with the site is the highest."""
    hashed = xxhash.xxh3_64_intdigest
    return [max(names, key=lambda name: hashed(f"{name}#{site}".encode())) for site in sites]


def _jump_owners(names: Sequence[str], sites: Sequence[str]) -> list[str]:
    """Lamping and Veach's jump hash; nodes can only be added and taken off at the end."""
    return [names[_jump(xxhash.xxh3_64_intdigest(site.encode()), len(names))] for site in sites]


def _jump(key: int, buckets: int) -> int:
    at, jump = -1, 0
    while jump < buckets:
        at = jump
        key = (key * 2862933555777941757 + 1) & (2**64 - 1)
        jump = int((at + 1) * (2**31 / ((key >> 33) + 1)))
    return at


def _shares_table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = (f"10,000 sites, {NAME_SETS} sets of names", "nodes", "busiest / mean", "moved by a join / ideal")
    figures = ((row["contender"], row["nodes"], row["busiest"], row["moved"]) for row in rows)
    return report.table(head, [_share_cells(*one) for one in figures])


def _share_cells(name: str, nodes: int, *values: Sequence[float]) -> list[str]:
    spreads = map(report.spread, values)
    return [name, str(nodes), *(f"{one.median:.3f} [{one.least:.3f}-{one.greatest:.3f}]" for one in spreads)]


# --- the index ----------------------------------------------------------------------------------------------------


def _ranges(nodes: int, vnodes: int) -> dict[str, int]:
    """How many ranges of the site index a joiner reads, and a node that takes one round over all it has."""
    before = placement.Placement.of(_view(_names(0, nodes), f"xxh3-64/{vnodes}"), 1)
    after = placement.Placement.of(_view([*_names(0, nodes), JOINER], f"xxh3-64/{vnodes}"), 2, before)
    gained = ring.moved_arcs(before.ring, after.ring)
    return {
        "nodes": nodes,
        "points": vnodes,
        "arcs moved by a join": len(gained),
        "ranges a joiner reads": len(ring.index_ranges(after.ring, gained)),
        "ranges of a node's round": len(ring.index_ranges(after.ring, after.ring.arcs_of(JOINER))),
    }


def _names(number: int, nodes: int) -> list[str]:
    return [f"set{number}-node-{node}" for node in range(nodes)]


def _view(nodes: Sequence[str], agreed: str) -> records.View:
    members = dict(zip(nodes, repeat(records.Member(incarnation=1, weight=1.0, address="")), strict=False))
    return records.View(members=members, fingerprint={"ring": agreed})


if __name__ == "__main__":
    sys.exit(main())
