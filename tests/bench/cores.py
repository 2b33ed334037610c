"""Many cores: the same web crawled by one node and by several of one machine, in turns, each on a core of its own.

`python -m tests.bench.cores [--nodes 1,2] [--pages N] [--rounds N] [--json FILE]`. Nodes share nothing but the stores.
The web, the stores and this program have no core of their own where there are as many nodes as cores: so what scales
is CPU a page, of the nodes and of the store; pages a second say what the machine gave.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coordinator import local, nodes, seeding, up
from shared import config
from tests.bench import product, readings, report, web

PAGES_A_NODE = 6_000
FIRST = 200


@dataclass(frozen=True, slots=True)
class Run:
    """One crawl, from its first page measured to its last."""

    pages: int
    wall_s: float
    cpu_s: float
    store_cpu_s: float
    busiest: float
    """Pages of the node that had most, over the mean."""


@contextlib.contextmanager
def crew(folder: Path, origin: web.Origin, count: int) -> Iterator[tuple[up.Stores, list[local.Child], list[Path]]]:
    """A fresh cluster of so many nodes, on cores 0, 1, ...; killed at the exit."""
    settings = config.load(environ=product.ENVIRON, options={"cluster": product.CLUSTER, "node.id": product.NODE})
    with contextlib.ExitStack() as stack:
        with contextlib.redirect_stdout(None):
            where = stack.enter_context(up.stores(folder, settings=settings))
        children, logs = [], []
        for number in range(count):
            name = f"n{number + 1}"
            place = nodes.Place(
                etcd=where.etcd,
                redis=where.redis,
                cluster=product.CLUSTER,
                out=folder / "out",
                logs=folder,
                arguments=(f"--connect-to={origin.address}", "--allow-private"),
                environ=product.ENVIRON,
            )
            command = [*readings.pinned(number % (os.cpu_count() or 1)), *nodes.node_command(place, name)]
            child = local.Child(command, log=folder / f"{name}.log", environ=nodes.node_environ(place))
            stack.callback(child.kill)
            children.append(child)
            logs.append(folder / "out" / f"crawl-{name}.jsonl")
        options = {"etcd": where.etcd, "redis": where.redis, "cluster": product.CLUSTER}
        told = config.load(environ=product.ENVIRON, options=options)
        asyncio.run(seeding.seed_lines(told, origin.seeds()))
        yield where, children, logs


def run(origin: web.Origin, count: int, pages_a_node: int) -> Run:
    """Raises TimeoutError where its pages do not come."""
    with (
        tempfile.TemporaryDirectory(prefix="crawlring-bench-") as folder,
        crew(Path(folder), origin, count) as (where, children, paths),
    ):
        store = next(server for server in where.ours if server.name == "valkey")
        logs = [product.Log(path) for path in paths]
        first = _until(logs, children, FIRST * count)
        begin = [readings.process(child.pid) for child in children]
        before = readings.store(store.port, store.pid)
        last = _until(logs, children, (FIRST + pages_a_node) * count)
        end = [readings.process(child.pid) for child in children]
        after = readings.store(store.port, store.pid)
    gone = [b - a for a, b in zip(first, last, strict=True)]
    return Run(
        pages=sum(gone),
        wall_s=end[0].wall_s - begin[0].wall_s,
        cpu_s=sum(b.cpu_s - a.cpu_s for a, b in zip(begin, end, strict=True)),
        store_cpu_s=after.cpu_s - before.cpu_s,
        busiest=max(gone) * count / sum(gone),
    )


def _until(logs: list[product.Log], children: list[local.Child], pages: int) -> list[int]:
    """The pages of each node once all have so many together."""
    deadline = time.monotonic() + product.RUN_S
    while sum(counts := [log.read() for log in logs]) < pages:
        ended = next((child for child in children if child.poll() is not None), None)
        if ended is not None or time.monotonic() > deadline:
            words = (ended or children[0]).last_words()
            raise TimeoutError(f"the crawl stopped at {sum(counts)} pages of {pages}: {words}")
        time.sleep(product.POLL_S)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cores", description=__doc__)
    parser.add_argument("--nodes", default="1,2", metavar="N,...", help="sizes (default 1,2)")
    parser.add_argument("--pages", type=int, default=PAGES_A_NODE, metavar="N", help="for each node")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of all sizes, in turns (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    args = parser.parse_args()
    sizes = [int(size) for size in args.nodes.split(",")]
    runs: dict[int, list[Run]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory(prefix="crawlring-web-") as folder, web.running(Path(folder)) as origin:
        for number in range(args.rounds):
            for size in sizes:
                runs[size].append(run(origin, size, args.pages))
                one = runs[size][-1]
                print(f"round {number + 1}  {size} nodes  {one.pages / one.wall_s:,.0f} pages/s", file=sys.stderr)
    rows = []
    for size, of_size in runs.items():
        figures = {
            "node CPU ms a page": report.spread(1_000 * one.cpu_s / one.pages for one in of_size),
            "store CPU ms a page": report.spread(1_000 * one.store_cpu_s / one.pages for one in of_size),
            "pages/s": report.spread(one.pages / one.wall_s for one in of_size),
            "busiest node / mean": report.spread(one.busiest for one in of_size),
        }
        rows.append({"nodes": str(size), **{name: str(value) for name, value in figures.items()}})
    print(report.table(list(rows[0]), [list(row.values()) for row in rows]))
    if args.json:
        report.write_json(args.json, "cores", rows, readings.machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
