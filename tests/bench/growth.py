"""Real clusters beside `crawlring simulate growth`: what a fetch costs the store and etcd with 1, 2, 4 and 8 nodes.

Every node has as many sites of its own whatever their number, each asked once a second, so that only the cluster's
size differs. Store commands are those of INFO commandstats, with what scripts send; etcd's calls are those of its
/metrics; both in one span of steady crawling. `--members N` loads an etcd with N sessions instead (`growth_members`),
`--costs` measures what one call costs etcd by the number of members (`growth_etcd`).
Run it as `python -m tests.bench.growth [--nodes 1,2,4,8]`; about half a minute a size.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from coordinator import growth_sessions, local, nodes, seeding, up
from shared import config, frontier, membership
from tests.bench import endless_web, growth_counts, growth_etcd

SITES = 20  # a node
CROSS = 4  # links of a page to other sites
DELAY_S = 1.0
SPAN_S = 15.0
WARM_S = 12.0
START_S = 90.0
PART = 50  # sessions of one process
SAME = 0.05  # store commands per fetch may differ by so much between sizes
CLAIMS = 4_000


def cluster(number: int, span_s: float) -> dict[str, float]:
    """Figures of one cluster of that many nodes, per fetch and per second."""
    sites = SITES * number
    with tempfile.TemporaryDirectory(prefix="crawlring-growth-") as temporary, ExitStack() as stack:
        data = Path(temporary)
        options = {"cluster": growth_counts.CLUSTER, "politeness.delay_min_s": DELAY_S}
        settings = config.load(environ={}, options=options)
        where = stack.enter_context(up.stores(data, settings=settings))
        origin = stack.enter_context(local.running(endless_web.process(data / "web", sites=sites, cross=CROSS)))
        crew = nodes.Crew(_place(where, origin, data))
        stack.callback(crew.kill)
        for node in range(number):
            crew.start(f"n{node}")
        etcd_pid = growth_counts.child_of(where.ours[0].pid)
        reached = config.load(environ={}, options=options | {"etcd": where.etcd, "redis": where.redis})
        asyncio.run(seeding.seed_lines(reached, endless_web.seeds(sites)))
        log = data / "web" / endless_web.LOG
        _wait_asked(log, sites, crew)
        time.sleep(WARM_S)
        pids = [crew.pid(node) for node in crew.alive()]
        etcd, began_s = growth_counts.etcd_counts(where.etcd), time.time()
        cpu_s, etcd_s = [growth_counts.cpu_s(pid) for pid in pids], growth_counts.cpu_s(etcd_pid)
        lines, store = _counted(log, where.redis)
        time.sleep(span_s)
        lines_after, store_after = _counted(log, where.redis)
        fetches, seconds = lines_after - lines, time.time() - began_s
        stored = growth_counts.rates(store, store_after, fetches)
        asked = growth_counts.rates(etcd, growth_counts.etcd_counts(where.etcd), seconds)
        spent = sum(growth_counts.cpu_s(pid) - before for pid, before in zip(pids, cpu_s, strict=True))
        return {
            "nodes": number,
            "fetches/s": fetches / seconds,
            "store commands/fetch": stored["all"],
            "scripts/fetch": stored["scripts"],
            "store reads/fetch": stored.get("reads", 0.0),
            "store ms/fetch": stored["cpu s"] * 1000,
            "node ms/fetch": spent * 1000 / fetches,
            "etcd looks/s": asked.get("Range", 0.0),
            "etcd writes/s": asked.get("Txn", 0.0),
            "etcd keepalives/s": asked.get("LeaseKeepAlive", 0.0),
            "etcd KiB/s": asked.get("bytes sent", 0.0) / 1024,
            "etcd CPU %": (growth_counts.cpu_s(etcd_pid) - etcd_s) / seconds * 100,
        }


def _place(where: up.Stores, origin: local.Server, data: Path) -> nodes.Place:
    return nodes.Place(
        etcd=where.etcd,
        redis=where.redis,
        cluster=growth_counts.CLUSTER,
        out=data / "out",
        logs=data / "logs",
        arguments=(
            "--user-agent=crawlring-growth/1.0 (+https://localhost/growth)",
            f"--delay={DELAY_S}",
            f"--connect-to={origin.address}",
        ),
    )


def _wait_asked(log: Path, sites: int, crew: nodes.Crew) -> None:
    """Until every site has been asked twice."""
    deadline_s = time.monotonic() + START_S
    while log.read_bytes().count(b'"/1"') + log.read_bytes().count(b'"/2"') < sites:
        if time.monotonic() > deadline_s or crew.ended():
            words = crew.log("n0").read_text()[-2_000:]
            raise SystemExit(f"after {START_S:g} s not all sites were crawled\n{words}")
        time.sleep(0.5)


def _counted(log: Path, url: str) -> tuple[float, dict[str, float]]:
    """Requests at the origin, half way through the time that asking the store takes; and what the store says."""
    before = log.read_bytes().count(b"\n")
    store = growth_counts.store_counts(url)
    return (before + log.read_bytes().count(b"\n")) / 2, store


def members(number: int, span_s: float) -> dict[str, float]:
    """An etcd under that many sessions, in processes of their own."""
    with tempfile.TemporaryDirectory(prefix="crawlring-growth-") as temporary, ExitStack() as stack:
        etcd = stack.enter_context(local.running(local.etcd(Path(temporary))))
        parts = []
        for first in range(0, number, PART):
            command = [
                *(sys.executable, "-P", "-m", "tests.bench.growth_members", "--etcd", etcd.address),
                *("--first", str(first), "--count", str(min(PART, number - first)), "--of", str(number)),
            ]
            part = subprocess.Popen(command, stdout=subprocess.PIPE, env=nodes.packages(), text=True)
            stack.callback(part.kill)
            parts.append(part)
        for part in parts:
            assert part.stdout is not None
            part.stdout.readline()
        time.sleep(5)
        pid = growth_counts.child_of(etcd.pid)
        counts, cpu_s, began_s = growth_counts.etcd_counts(etcd.address), growth_counts.cpu_s(pid), time.time()
        clients_s = [growth_counts.cpu_s(part.pid) for part in parts]
        time.sleep(span_s)
        seconds = time.time() - began_s
        asked = growth_counts.rates(counts, growth_counts.etcd_counts(etcd.address), seconds)
        spent_s, all_s = growth_counts.cpu_s(pid) - cpu_s, sum(growth_counts.cpu_s(part.pid) for part in parts)
        for part in parts:
            part.send_signal(signal.SIGTERM)
        return {
            "members": number,
            "etcd CPU %": spent_s / seconds * 100,
            "clients' CPU %": (all_s - sum(clients_s)) / seconds * 100,
            "looks/s": asked.get("Range", 0.0),
            "confirms/s": asked.get("Txn", 0.0),
            "keepalives/s": asked.get("LeaseKeepAlive", 0.0),
            "KiB/look": asked.get("bytes sent", 0.0) / 1024 / asked["Range"],
            "log KiB/confirm": asked.get("wal bytes", 0.0) / 1024 / asked["Txn"],
        }


def simulated(number: int) -> dict[str, float]:
    """What the simulation says of the same cluster, per second of quiet."""
    settings = config.Config()
    told = growth_sessions.measured(
        number,
        settings=membership.settings_of(settings.membership),
        fingerprint=membership.fingerprint(settings, sites_digest="growth"),
        fetch_s=0.3,
        seed=1,
    )
    quiet = told.steady
    return {
        "etcd looks/s": quiet["look"],
        "etcd writes/s": quiet["confirm"],
        "etcd keepalives/s": quiet["keepalive"],
        "KiB/look": quiet["look bytes"] / quiet["look"] / 1024,
    }


async def claims(url: str) -> dict[str, float]:
    """How fast one node claims sites, and what that costs the store."""
    store = await frontier.Frontier.open(url, growth_counts.CLUSTER)
    names = [f"site-{number}.example" for number in range(CLAIMS)]
    before, began_s = growth_counts.store_counts(url), time.monotonic()
    for first in range(0, CLAIMS, 128):
        await store.claim(names[first : first + 128], "n1", 1 << 40, delay_s=2.0)
    seconds = time.monotonic() - began_s
    spent = growth_counts.rates(before, growth_counts.store_counts(url), CLAIMS)
    await store.close()
    return {"claims/s": CLAIMS / seconds, "store ms/claim": spent["cpu s"] * 1000, "commands/claim": spent["all"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; exit status 1 where store commands per fetch depend on the number of nodes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", default="1,2,4,8", metavar="N,...", help="sizes (default 1,2,4,8)")
    parser.add_argument("--span", type=float, default=SPAN_S, metavar="S", help="seconds measured (default 15)")
    parser.add_argument("--members", metavar="N,...", help="only etcd, under that many sessions")
    parser.add_argument("--costs", action="store_true", help="only etcd, by what one call costs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    args = parser.parse_args(argv)
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    print(f"machine: {machine}, etcd {local.find_etcd()}")
    status = 0
    if args.costs:
        with tempfile.TemporaryDirectory() as data, local.running(local.etcd(Path(data))) as server:
            found = growth_etcd.costs(server.address, growth_counts.child_of(server.pid), [1, 10, 100, 300, 1_000])
        rows: list[dict[str, Any]] = [{name: getattr(cost, name) for name in cost.__slots__} for cost in found]
        with tempfile.TemporaryDirectory() as data, local.running(local.valkey(Path(data))) as server:
            rows.append(asyncio.run(claims(local.redis_url(server))))
    elif args.members:
        rows = [members(int(number), args.span) for number in args.members.split(",")]
    else:
        rows = [cluster(int(number), args.span) for number in args.nodes.split(",")]
        for row in rows:
            beside = simulated(int(row["nodes"]))
            row |= {f"{name}, real/simulated": row[name] / beside[name] for name in beside if name in row}
        per_fetch = [row["store commands/fetch"] for row in rows]
        spread = (max(per_fetch) - min(per_fetch)) / statistics.mean(per_fetch)
        print(f"store commands per fetch differ by {spread:.1%} between sizes (at most {SAME:.0%} wanted)")
        status = 1 if spread > SAME else 0
    for row in rows:
        print(
            "  ".join(
                f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
            )
        )
    if args.json:
        args.json.write_text(_document(rows, machine))
    return status


def _document(rows: list[dict[str, Any]], machine: str) -> str:
    """As the other benches write it."""
    return json.dumps({"name": "growth", "machine": machine, "rows": rows}, indent=1)


if __name__ == "__main__":
    sys.exit(main())
