"""Seeded clusters by the thousand, over all cores: a violation is shrunk, told and is exit status 1.

`python -m tests.scenarios.explore --seeds 10000` runs the protocol as it is, `--mutations` each weakened rule until it is
caught, `--mutation NAME` one of them.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.scenarios import chaos, judge, moves, mutations, shrink

BATCH = 25
LIMIT = 3_000


@dataclass(frozen=True, slots=True)
class Found:
    """What a batch of runs came to."""

    runs: int
    contacts: int
    moves: int
    caught: tuple[int, str] | None
    """(seed, setting) of the first that failed."""


def order(setting: str | None) -> Iterator[tuple[int, str]]:
    """Run k of a search: all settings with a seed, then all with the next."""
    names = [setting] if setting else list(chaos.SETTINGS)
    return ((seed, name) for seed in itertools.count() for name in names)


def batch(first: int, count: int, *, setting: str | None, mutation: str | None) -> Found:
    contacts = changes = 0
    with mutations.weakened(mutation):
        for number, (seed, name) in enumerate(itertools.islice(order(setting), first, first + count), 1):
            run = chaos.world(seed, name)
            pair = run.run()
            contacts += len(run.contacts)
            changes += judge.moves(run.contacts)
            if pair:
                return Found(number, contacts, changes, (seed, name))
    return Found(count, contacts, changes, None)


def search(
    pool: concurrent.futures.Executor, runs: int, *, setting: str | None, mutation: str | None, progress: bool
) -> Found:
    """The first failing run in order, or none of `runs`."""
    work = functools.partial(batch, setting=setting, mutation=mutation)
    total = contacts = changes = 0
    started_s = shown_s = time.monotonic()
    ahead = 2 * (os.cpu_count() or 1)
    firsts = iter(range(0, runs, BATCH))
    waiting = [pool.submit(work, first, min(BATCH, runs - first)) for first in itertools.islice(firsts, ahead)]
    while waiting:
        found = waiting.pop(0).result()
        total, contacts, changes = total + found.runs, contacts + found.contacts, changes + found.moves
        if found.caught:
            for future in waiting:
                future.cancel()
            return Found(total, contacts, changes, found.caught)
        waiting += [pool.submit(work, first, min(BATCH, runs - first)) for first in itertools.islice(firsts, 1)]
        if progress and time.monotonic() > shown_s + 10:
            shown_s = time.monotonic()
            print(
                f"{total:7,} of {runs:,} runs, {contacts:,} requests, {changes:,} moves, {shown_s - started_s:.0f} s",
                flush=True,
            )
    return Found(total, contacts, changes, None)


def shrunk(seed: int, setting: str, mutation: str | None) -> tuple[moves.Plan, str]:
    """The shortest plan found of a run that fails, and its transcript."""
    with mutations.weakened(mutation):
        run = chaos.world(seed, setting)
        run.run()
        plan, runs = shrink.shortest(chaos.played(run))
        head = f"seed {seed}, setting {setting}, {mutation or 'the protocol as it is'}: {len(run.played)} moves shrunk to {len(plan.moves)} in {runs} runs"
        return plan, shrink.told(plan, head=head)


def explain(found: Found, mutation: str | None, *, plan: bool) -> None:
    assert found.caught is not None
    shortest, text = shrunk(*found.caught, mutation)
    print(text)
    if plan:
        print(json.dumps(moves.to_json(shortest)))


def table(pool: concurrent.futures.Executor, names: list[str], arguments: argparse.Namespace) -> int:
    """Each weakened rule until it is caught."""
    missed = 0
    print(f"{'weakened rule':22} {'rule':4} {'runs':>6} {'seed':>6} {'setting':8} {'s':>5}  what it does")
    for name in names:
        started_s = time.monotonic()
        found = search(pool, LIMIT, setting=arguments.setting, mutation=name, progress=False)
        missed += found.caught is None
        seed, setting = found.caught or ("-", "not caught")
        taken_s = time.monotonic() - started_s
        rule = mutations.MUTATIONS[name]
        print(
            f"{name:22} {rule.rule:4} {found.runs:6,} {seed!s:>6} {setting:8} {taken_s:5.0f}  {rule.says}", flush=True
        )
        if arguments.shrink and found.caught:
            explain(found, name, plan=arguments.plan)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.explore", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=0, help="runs of the protocol as it is, over all settings in turn")
    parser.add_argument("--setting", choices=sorted(chaos.SETTINGS | chaos.BY_REQUEST), help="this one alone")
    parser.add_argument("--mutation", choices=sorted(mutations.MUTATIONS), action="append", help="until it is caught")
    parser.add_argument("--mutations", action="store_true", help="all of them that a search can find")
    parser.add_argument("--shrink", action="store_true", help="tell what caught a weakened rule, as shortly as can be")
    parser.add_argument("--plan", action="store_true", help="and print its plan as JSON")
    arguments = parser.parse_args()
    names = arguments.mutation or []
    if arguments.mutations:
        names = [name for name in mutations.MUTATIONS if name not in mutations.BY_SCHEDULE]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        if arguments.seeds:
            found = search(pool, arguments.seeds, setting=arguments.setting, mutation=None, progress=True)
            print(
                f"{found.runs:,} runs, {found.contacts:,} requests, {found.moves:,} moves: {'a violation' if found.caught else 'no violation'}"
            )
            if found.caught:
                explain(found, None, plan=arguments.plan)
                return 1
        return 1 if table(pool, names, arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
