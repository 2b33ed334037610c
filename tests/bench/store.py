"""`python -m tests.bench.store`: what a page costs the store and its client, and how many bytes a URL takes by kind of key.

Everything goes through the product's own calls, on a Valkey and a Redis of their own on core 1, the client on core 0.
A page has 40 links, half to its own site, the rest zipf over 1,000 sites; the known ones are sent too, which the node's
memory of what it offered lately would mostly spare. Costs are CPU; each round asks every store once, medians of rounds.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import redis

from coordinator import local
from shared import frontier, records, ring
from tests import redis_cluster, servers
from tests.bench import readings, report

LINKS, WEB_SITES, KNOWN_EACH, WORKERS = 40, 1_000, 200, 64
SKEW = 1.05
BATCH = 20_000  # URLs offered at once while a store is filled
SAMPLED = 20_000  # keys whose memory is asked for
PLACE = records.PageRecord(
    etag='"5f3-abc"', last_modified="Tue, 01 Dec 2026 00:00:00 GMT", content=2**62, last_check_ms=1, status=200, depth=3
)


def offer(site: str, number: int) -> records.Offer:
    """A URL of 61 bytes, as they are on average."""
    score = ring.score_of("xxh3-64", site)
    return records.Offer(
        url=f"https://www.{site}/catalogue/{number % 97:02d}/item-{number:08d}.html", site=site, score=score, meta="3"
    )


def site_sizes(urls: int, sites: int, biggest: int) -> list[int]:
    """One site of its own, the others zipf."""
    shares = [1 / (rank + 2) ** SKEW for rank in range(sites - 1)]
    whole = sum(shares)
    return [biggest, *(max(1, round((urls - biggest) * share / whole)) for share in shares)]


async def fill(url: str, sizes: Sequence[tuple[int, int]]) -> int:
    """Offer so many URLs of each numbered site."""
    desk = await frontier.Frontier.open(url, "bytes", call_s=60.0)
    batch: list[records.Offer] = []
    count = 0
    for site, size in sizes:
        for number in range(size):
            batch.append(offer(f"site-number-{site}.example", number * 7919 % 10**8))
            if len(batch) == BATCH:
                count += len(await desk.offer(batch, owner_of=lambda _site: "n1", pages_max=10**9))
                batch.clear()
    count += len(await desk.offer(batch, owner_of=lambda _site: "n1", pages_max=10**9))
    await desk.close()
    return count


def _filled(url: str, sizes: Sequence[tuple[int, int]]) -> int:
    return asyncio.run(fill(url, sizes))


def bytes_per_url(url: str, sizes: Sequence[int], *, processes: int) -> tuple[int, dict[str, float]]:
    """How many URLs the store took, and its bytes for each: `all`, and by kind of key from a sample of keys."""
    raw: Any = redis.Redis.from_url(url, protocol=2)
    before = int(raw.info("memory")["used_memory"])
    numbered = list(enumerate(sizes))
    # The biggest site is one process's work: its batches are the others' equals.
    parts = [numbered[at::processes] for at in range(processes)]
    with ProcessPoolExecutor(processes) as pool:
        count = sum(pool.map(_filled, [url] * processes, parts))
    found = {"all": (int(raw.info("memory")["used_memory"]) - before) / count}
    keys = list(raw.scan_iter(count=10_000))
    sample = random.Random(1).sample(keys, min(SAMPLED, len(keys)))
    sums: dict[str, int] = defaultdict(int)
    for key in sample:
        sums[_kind(key.decode())] += raw.memory_usage(key, samples=0) or 0
    found |= {kind: total * len(keys) / len(sample) / count for kind, total in sorted(sums.items())}
    return count, found


def _kind(key: str) -> str:
    return (key.split("}:")[1] if "}:" in key else key.split(":", 2)[2]).split(":")[0]


def pages(count: int, *, new: float, seed: int) -> Iterator[tuple[str, list[records.Offer]]]:
    """(site, links) of each page."""
    rng = random.Random(seed)
    names = [f"web-{number}.example" for number in range(WEB_SITES)]
    weights = [1 / (rank + 1) ** SKEW for rank in range(WEB_SITES)]
    for page in range(count):
        own, *others = rng.choices(names, weights, k=1 + LINKS // 2)
        sites = [own] * (LINKS - len(others)) + others
        yield (
            own,
            [
                offer(site, 10**7 + page * LINKS + at if rng.random() < new else rng.randrange(KNOWN_EACH))
                for at, site in enumerate(sites)
            ],
        )


async def _opened(url: str) -> tuple[frontier.Frontier, dict[str, records.SiteRecord]]:
    """A frontier of the whole web, all of it ours."""
    desk = await frontier.Frontier.open(url, "pages")
    names = [f"web-{number}.example" for number in range(WEB_SITES)]
    for name in names:
        await desk.offer([offer(name, number) for number in range(KNOWN_EACH)], owner_of=_owner, pages_max=10**9)
    held = {
        record.site: record
        for record in await desk.claim(names, "n1", 1, delay_s=0.0)
        if isinstance(record, records.SiteRecord)
    }
    return desk, held


async def _crawl(
    desk: frontier.Frontier,
    held: dict[str, records.SiteRecord],
    *,
    count: int,
    new: float,
    workers: int,
    seed: int = 1,
) -> int:
    """Commit so many pages with their links; how many links were new."""
    work = iter(list(pages(count, new=new, seed=seed)))
    turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
    accepted = 0

    async def worker() -> None:
        nonlocal accepted
        for site, links in work:
            async with turns[site]:
                record = held[site]
                change = records.Commit(
                    due_in_s=1.0,
                    due_term="minimum",
                    delay_s=1.0,
                    delay_term="minimum",
                    done=record.head[:1],
                    pages=tuple((one.url, PLACE) for one in record.head[:1]),
                    visits=1,
                    bytes=20_000,
                    fetched_ms_ago=9,
                )
                answer = await desk.commit(
                    site, "n1", 1, record.n + 1, change, offers=links, owner_of=_owner, pages_max=10**9
                )
                held[site] = answer.record
                accepted += answer.verdicts.count("accepted")

    await asyncio.gather(*(worker() for _ in range(workers)))
    return accepted


async def page_costs(url: str, port: int, pid: int, *, count: int, new: float) -> dict[str, float]:
    """Of a page: client and store CPU, the store's reads (of any number of commands), links that were new."""
    raw: Any = redis.Redis.from_url(url, protocol=2)
    raw.flushall()
    desk, held = await _opened(url)
    before, began_s = readings.store(port, pid), time.process_time()
    accepted = await _crawl(desk, held, count=count, new=new, workers=WORKERS)
    client_s, after = time.process_time() - began_s, readings.store(port, pid)
    await desk.close()
    return {
        "client ms": 1000 * client_s / count,
        "store ms": 1000 * (after.cpu_s - before.cpu_s) / count,
        "trips": (after.trips - before.trips) / count,
        "new links": accepted / count,
    }


async def cluster_trips(cluster: redis_cluster.Cluster, *, count: int, new: float) -> dict[str, float]:
    """Of a page on a Redis Cluster: sites it names, scripts, reads of the masters; one page at a time, and many."""
    linked = [len({site, *(one.site for one in links)}) for site, links in pages(count, new=new, seed=1)]
    found = {"sites linked to": statistics.fmean(linked)}
    desk, held = await _opened(cluster.url)
    for name, workers in (("alone", 1), ("together", WORKERS)):
        before = await _counts(cluster)
        await _crawl(desk, held, count=count, new=new, workers=workers, seed=workers)
        after = await _counts(cluster)
        found |= {f"{what} {name}": (after[what] - before[what]) / count for what in after}
    await desk.close()
    return found


async def _counts(cluster: redis_cluster.Cluster) -> dict[str, int]:
    masters = cluster.servers[: redis_cluster.MASTERS]
    stats = [await cluster.ask(one, "INFO", "stats") for one in masters]
    calls = [await cluster.ask(one, "INFO", "commandstats") for one in masters]
    return {
        "trips": sum(one["total_reads_processed"] for one in stats),
        "scripts": sum(one["cmdstat_evalsha"]["calls"] for one in calls),
    }


def _owner(_site: str) -> str | None:
    return "n1"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.store", description=__doc__.split("\n")[0])
    parser.add_argument("--urls", type=int, default=1_000_000, help="of which the bytes are counted; 0: none")
    parser.add_argument("--sites", type=int, help="default: a hundredth of the URLs")
    parser.add_argument("--biggest", type=int, help="URLs of the biggest site; default: a tenth of all")
    parser.add_argument("--processes", type=int, default=2, help="that fill the store")
    parser.add_argument("--pages", type=int, default=2_000, help="whose cost is measured in each round; 0: none")
    parser.add_argument("--new", type=float, default=0.4, help="of the links")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cluster", action="store_true", help="count a page's round trips on a Redis Cluster too")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    machine = readings.machine()
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    rows: list[dict[str, Any]] = []
    cores = os.sched_getaffinity(0)
    for name, make in servers.STORES.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            servers.running(make(Path(folder), options=servers.UNSYNCED)) as one,
        ):
            url, pid = local.redis_url(one), one.pid
            os.sched_setaffinity(pid, {max(cores)})
            if chosen.pages:
                readings.pin_self(min(cores))
                costs = [
                    asyncio.run(page_costs(url, one.port, pid, count=chosen.pages, new=chosen.new))
                    for _ in range(chosen.rounds)
                ]
                row = {what: statistics.median(cost[what] for cost in costs) for what in costs[0]}
                rows.append({"store": name, "of": "a page", **row})
            if chosen.urls:
                os.sched_setaffinity(0, cores)
                servers.flush(one)
                sites, biggest = chosen.sites or chosen.urls // 100, chosen.biggest or chosen.urls // 10
                count, found = bytes_per_url(url, site_sizes(chosen.urls, sites, biggest), processes=chosen.processes)
                rows.append({"store": name, "of": f"bytes a URL, {count:,} URLs of {sites:,} sites", **found})
    if chosen.cluster:
        with (
            tempfile.TemporaryDirectory() as folder,
            redis_cluster.running(Path(folder), store=servers.valkey9) as cluster,
        ):
            found = asyncio.run(cluster_trips(cluster, count=chosen.pages, new=chosen.new))
        rows.append({"store": "Redis Cluster of three masters", "of": "a page", **found})
    for line in rows:
        print(
            line["store"],
            line["of"] + ":",
            ", ".join(f"{name} {value:.3g}" for name, value in line.items() if isinstance(value, float)),
        )
    if chosen.json:
        report.write_json(chosen.json, "store", rows, machine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
