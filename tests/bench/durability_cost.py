"""What `durability = "strict"` costs: the time of a commit, on one server and on a cluster.

`python -m tests.bench.durability_cost [--rounds N]` prints a table. All variants run in turn within each round, so that
what else the machine does falls on all of them.
"""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coordinator import local
from shared import frontier
from tests import redis_cluster as clusters
from tests import servers
from tests.stores import shapes

ALONE = 10  # commits of a round, one after the other
AT_ONCE = 64  # sites whose commits are asked for together
VARIANTS: tuple[frontier.Durability, ...] = ("default", "strict")
Found = list[tuple[str, str, tuple[frontier.Durability, ...]]]


@dataclass
class Measured:
    store: str
    durability: frontier.Durability
    url: str
    alone_ms: list[float] = field(default_factory=list)
    together_s: list[float] = field(default_factory=list)
    n: int = 0

    def row(self) -> str:
        alone = sorted(self.alone_ms)
        at_95 = alone[int(0.95 * (len(alone) - 1))]
        rate = AT_ONCE / statistics.median(self.together_s)
        return f"| {self.store} | {self.durability} | {statistics.median(alone):.1f} | {at_95:.1f} | {rate:,.0f} |"


async def one_round(measured: Measured) -> None:
    desk = await frontier.Frontier.open(measured.url, f"bench-{measured.durability}", durability=measured.durability)
    sites = [f"s{number}.org" for number in range(AT_ONCE)]
    if not measured.n:
        await shapes.offered(desk, *(shapes.offer(number, site) for site in sites for number in range(5)))
        await desk.claim(sites, "n1", 1, delay_s=0.0)
    for _ in range(ALONE):
        began = time.perf_counter()
        await commit(desk, sites[measured.n % AT_ONCE], measured.n)
        measured.alone_ms.append(1000 * (time.perf_counter() - began))
        measured.n += 1
    began = time.perf_counter()
    await asyncio.gather(*(commit(desk, site, 1_000_000 + measured.n) for site in sites))
    measured.together_s.append(time.perf_counter() - began)
    await desk.close()


async def commit(desk: frontier.Frontier, site: str, n: int) -> None:
    await desk.commit(site, "n1", 1, n + 1, shapes.done(due_in_s=0.0, delay_s=0.0))


@contextlib.contextmanager
def stores(folder: Path) -> Iterator[Found]:
    """(what it is, URL, what it can keep)."""
    with contextlib.ExitStack() as stack:
        found: Found = []
        server = servers.valkey9(folder / "everysec")
        stack.enter_context(servers.running(server))
        found.append(("Valkey 9, appendfsync everysec", local.redis_url(server), VARIANTS[:1]))
        server = servers.valkey9(folder / "always", options=("--appendfsync", "always"))
        stack.enter_context(servers.running(server))
        found.append(("Valkey 9, appendfsync always", local.redis_url(server), VARIANTS))
        for name, store in servers.STORES.items():
            for policy in ("everysec", "always"):
                options = ("--appendfsync", policy)
                lab = stack.enter_context(clusters.running(folder / f"{name}-{policy}", store=store, options=options))
                found.append((f"{name}, 3 masters and 3 replicas, appendfsync {policy}", lab.url, VARIANTS))
        yield found


async def measure(rounds: int, found: Found) -> list[Measured]:
    everything = [Measured(store, durability, url) for store, url, kept in found for durability in kept]
    for _ in range(rounds):
        for one in everything:
            await one_round(one)
    return everything


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of 10 commits one by one and 64 at once (default 10)")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, stores(Path(folder)) as found:
        everything = asyncio.run(measure(rounds, found))
    print("| store | durability | commit, median ms | 95 % ms | commits/s, 64 at once |\n|---|---|---|---|---|")
    print("\n".join(one.row() for one in everything))
    print(f"\n{rounds * ALONE} commits one by one in each row; all servers on this machine.")


if __name__ == "__main__":
    main()
