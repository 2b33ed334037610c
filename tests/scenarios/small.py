"""Exhaustive where small: two nodes, one site, one change of view, and every pair of faults out of a written list.

n0 has the site; at second `AT_S` it is to go to n1, in one of four ways. Each message, process and
request may be struck at each of some moments; all single faults and all pairs of them are run.
"""

import argparse
import copyreg
import itertools
import pickle
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.scenarios import judge, moves, mutations, world
from tests.scenarios.moves import Move


def _proxy(values: dict[str, float]) -> types.MappingProxyType[str, float]:
    return types.MappingProxyType(values)


# A ring's weights are behind a read-only proxy, which pickle does not know.
copyreg.pickle(types.MappingProxyType, lambda proxy: (_proxy, (dict(proxy),)))


AT_S = 11.0
LASTS_S = 10.0
SITE = "s0.example"
NO_WORD = ("watch", "look", "confirm", "propose")
MOMENTS = (-0.4, 0.4, 1.2, 2.2, 4.2)
FEW = (-0.4, 1.2)
ONE = (-0.4,)

CHANGES = {
    "placed": (Move(AT_S, "override", site=SITE, node="n1"),),
    "revoked": (Move(AT_S, "revoke", node="n0"),),
    "drained": (Move(AT_S, "drain", 0),),
    "crashed": (Move(AT_S, "crash", 0, seconds=1.0),),
}
BEGIN = moves.Plan(
    actors=moves.cast("n0", "n1"),
    moves=(Move(1.0, "override", site=SITE, node="n0"),),
    until_s=AT_S + LASTS_S,
    sites=(SITE,),
)

Fault = tuple[Move, ...]


def faults(moments: tuple[float, ...]) -> list[Fault]:
    """Every single fault."""
    found: list[Fault] = []
    for at_s in (AT_S + moment for moment in moments):
        for who, call in itertools.product((0, 1), ("look", "confirm")):
            found += [
                (Move(at_s, "lost", who, call),),
                (Move(at_s, "no answer", who, call),),
                (Move(at_s, "late", who, call, 3.0),),
                (Move(at_s, "late answer", who, call, 4.5),),
            ]
        found += [(Move(at_s, "late", who, "propose", 2.0),) for who in (0, 1)]
        found += [(Move(at_s, "freeze", who, seconds=seconds),) for who in (0, 1) for seconds in (2.0, 7.0)]
        found += [
            tuple(Move(at_s, "cut", 0, call, seconds) for call in calls)
            for calls in (NO_WORD, (*NO_WORD, "keepalive", "resign"))
            for seconds in (4.0, 9.0)
        ]
        found.append((Move(at_s, "cut", 1, "look", 4.0),))
        found += [(Move(at_s, "tail", 0, "visit", 2.2, SITE),), (Move(at_s, "long", 0, "visit", 4.0, SITE),)]
        found.append((Move(at_s, "amnesia", 1, "claim", site=SITE),))
    return found


def choices(moments: tuple[float, ...]) -> Iterator[Fault]:
    """None, each, and each pair."""
    single = faults(moments)
    yield ()
    yield from single
    for one, other in itertools.combinations(single, 2):
        yield (*one, *other)


@dataclass(frozen=True, slots=True)
class Enumerated:
    """What was run, how often the site changed hands, and the first choice that failed."""

    runs: int
    moves: int
    failed: moves.Plan | None


def enumerate_all(change: str, moments: tuple[float, ...], *, mutation: str | None = None) -> Enumerated:
    """All choices in order, from one common beginning; up to the first that fails."""
    with mutations.weakened(mutation):
        begin = world.World(BEGIN)
        begin.run(AT_S - 0.5)
        frozen = pickle.dumps(begin)
        count = hands = 0
        for count, choice in enumerate(choices(moments), 1):
            run: world.World = pickle.loads(frozen)
            what = tuple(sorted((*CHANGES[change], *choice), key=lambda move: move.at_s))
            run.add(what)
            if run.run():
                return Enumerated(count, hands, replace(BEGIN, moves=(*BEGIN.moves, *what)))
            hands += judge.moves(run.contacts)
        return Enumerated(count, hands, None)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scenarios.small", description=__doc__.split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--few", action="store_true", help=f"{len(FEW)} moments instead of {len(MOMENTS)}")
    parser.add_argument("--mutation", choices=sorted(mutations.MUTATIONS), help="with this rule weakened")
    arguments = parser.parse_args()
    bad = 0
    for change in CHANGES:
        found = enumerate_all(change, FEW if arguments.few else MOMENTS, mutation=arguments.mutation)
        bad += found.failed is not None
        print(
            f"{change:8} {found.runs:6,} runs, {found.moves:6,} moves: {'a violation' if found.failed else 'none'}",
            flush=True,
        )
        if found.failed:
            print(*(found.failed.tell(move) + f" at {move.at_s:.1f} s" for move in found.failed.moves[1:]), sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
