"""Runs of many schedules, the shortest of one that fails, and the command."""

import argparse
import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import redis

from coordinator import local
from shared import frontier
from tests import servers
from tests.stores.amnesia import scripts
from tests.stores.amnesia.schedules import Plan, planned
from tests.stores.amnesia.world import CLOCK, Failure, Figures, World


class Explorer:
    """Runs plans on one store, one after the other."""

    _names = itertools.count()

    def __init__(self, url: str) -> None:
        self.url = url
        self.figures = Figures()
        self._raw = redis.Redis.from_url(url, protocol=2)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()
        self._raw.delete(CLOCK)
        self._raw.close()

    def run(self, plan: Plan, *, mutation: str | None = None) -> Failure | None:
        with scripts.weakened(mutation):
            return self._runner.run(self._run(plan))

    async def _run(self, plan: Plan) -> Failure | None:
        desk = await frontier.Frontier.open(self.url, f"amnesia{next(self._names)}")
        try:
            return await World(plan, desk, self._raw, figures=self.figures).run()
        finally:
            await desk.close()

    def first(self, seeds: Sequence[int], *, mutation: str | None = None) -> tuple[int, Failure] | None:
        for seed in seeds:
            failure = self.run(planned(seed), mutation=mutation)
            if failure is not None:
                return seed, failure
        return None

    def shortest(self, plan: Plan, *, mutation: str | None = None) -> Plan:
        """Without the moves that the failure does not need: ever smaller pieces are left out, while it still fails."""
        size = len(plan.moves) // 2
        while size:
            at, taken = 0, False
            while at < len(plan.moves):
                candidate = replace(plan, moves=plan.moves[:at] + plan.moves[at + size :])
                if self.run(candidate, mutation=mutation):
                    plan, taken = candidate, True
                else:
                    at += size
            size = size if taken and size == 1 else size // 2
        return plan

    def transcript(self, plan: Plan, *, mutation: str | None = None) -> str:
        failure = self.run(plan, mutation=mutation)
        head = f"seed {plan.seed}, {'strict' if plan.strict else 'default'} durability, {mutation or 'the scripts as they are'}"
        lines = failure.told if failure else ["nothing fails"]
        return "\n".join(
            [f"{head}: {len(plan.moves)} moves", *lines, *([f"broken: {failure.promise}"] if failure else [])]
        )


@contextlib.contextmanager
def own_servers(names: Sequence[str]) -> Iterator[dict[str, Explorer]]:
    with contextlib.ExitStack() as stack:
        explorers = {}
        for name in names:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = servers.STORES[name](folder, options=servers.UNSYNCED)
            stack.enter_context(servers.running(server))
            explorers[name] = stack.enter_context(Explorer(local.redis_url(server)))
        yield explorers


def tell_mutations(explorers: dict[str, Explorer], names: Sequence[str], *, seeds: Sequence[int], told: bool) -> int:
    missed = 0
    print(f"{'weakened script':22} {'store':8} {'runs':>5} {'seed':>5} {'moves':>5}  what it does")
    for name, (store, explorer) in itertools.product(names, explorers.items()):
        found = explorer.first(seeds, mutation=name)
        if found is None:
            missed += 1
            print(f"{name:22} {store:8} not caught in {len(seeds)} runs: {scripts.MUTATIONS[name].says}")
            continue
        seed, _ = found
        plan = explorer.shortest(planned(seed), mutation=name)
        runs = seeds.index(seed) + 1
        print(f"{name:22} {store:8} {runs:5} {seed:5} {len(plan.moves):5}  {scripts.MUTATIONS[name].says}", flush=True)
        if told:
            print(explorer.transcript(plan, mutation=name))
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stores.amnesia", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--store", choices=sorted(servers.STORES), help="this one alone")
    parser.add_argument("--mutation", choices=sorted(scripts.MUTATIONS), action="append", help="until it is caught")
    parser.add_argument("--mutations", action="store_true", help="all of them")
    parser.add_argument("--told", action="store_true", help="and tell what caught each, as shortly as can be")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    mutations = list(scripts.MUTATIONS) if arguments.mutations else arguments.mutation
    with own_servers([arguments.store] if arguments.store else list(servers.STORES)) as explorers:
        if mutations:
            return min(1, tell_mutations(explorers, mutations, seeds=seeds, told=arguments.told))
        for store, explorer in explorers.items():
            began_s = time.monotonic()
            found = explorer.first(seeds)
            if found is not None:
                print(explorer.transcript(explorer.shortest(planned(found[0]))))
                return 1
            print(f"{store}: {len(seeds)} schedules in {time.monotonic() - began_s:.0f} s, {explorer.figures}")
    return 0
