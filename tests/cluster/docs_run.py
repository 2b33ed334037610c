"""The crawl of real pages as processes: three nodes, a lease revoked half way, a drain, and the same nodes once more.

It starts, waits and stops; what came of it is judged by others from what nginx and the nodes have written.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis.asyncio

from coordinator import local, nodes, up
from shared import etcd, frontier, keys
from tests.cluster import docs_judge, docs_web

NODES = ("one", "two", "three")  # each owns one of the three sites
CLUSTER = "docs"
ROUNDS_A_DAY = 1440.0  # the recrawl budget is a round of all pages a minute: the delay and the interval bound it


class Ended(Exception):
    """The crawl has failed: the time is over, or a node has died."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs, and where."""

    data: Path
    where: up.Stores
    nginx: local.Server
    delay_s: float
    interval_s: float
    """No page is visited again sooner: the first pass must be over by then."""
    began_s: float = field(default_factory=time.monotonic)

    @property
    def log(self) -> Path:
        return self.data / "nginx" / docs_web.LOG

    @property
    def out(self) -> Path:
        return self.data / "out"

    def place(self, node: str) -> nodes.Place:
        """Each node calls itself by its own name, so that nginx's log tells them apart."""
        scope = (f"--allow={site.name}" for site in docs_web.SITES)
        return nodes.Place(
            etcd=self.where.etcd,
            redis=self.where.redis,
            cluster=CLUSTER,
            out=self.out,
            logs=self.data / "logs",
            arguments=(
                f"--user-agent={docs_judge.AGENT}-{node}/1.0 (+https://localhost/docs)",
                f"--delay={self.delay_s}",
                f"--connect-to={self.nginx.address}",
                "--warc",
                "--recrawl",
                *scope,
            ),
            environ={
                "CRAWLRING_RECRAWL__INTERVAL_MIN_S": str(self.interval_s),
                "CRAWLRING_RECRAWL__INTERVAL_START_S": str(self.interval_s),
                "CRAWLRING_RECRAWL__VISITS_PER_PAGE_DAY": str(ROUNDS_A_DAY),
            },
        )

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self.began_s:4.0f} s: {text}", flush=True)

    def command(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """`crawlring ...` against this cluster."""
        where = (f"--etcd={self.where.etcd}", f"--redis={self.where.redis}", f"--cluster={CLUSTER}")
        return subprocess.run(
            [sys.executable, "-P", "-m", "coordinator.cli", *arguments, *where],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=nodes.packages(),
        )

    def answers(self) -> docs_web.Answers:
        """What the nodes were answered so far."""
        return docs_web.answers(self.log, docs_judge.AGENT)

    def lines(self, kind: str) -> Iterator[dict[str, Any]]:
        """All nodes' JSON Lines: `pages` or `crawl`."""
        for file in sorted(self.out.glob(f"{kind}-*.jsonl")):
            with file.open() as opened:
                yield from map(json.loads, opened)


def both_passes(stage: Stage) -> docs_judge.Passes:
    """Run all of it. Raises Ended; no process of ours is left in either case."""
    crews = {node: nodes.Crew(stage.place(node)) for node in NODES}
    try:
        return asyncio.run(_both(stage, crews))
    finally:
        for crew in crews.values():
            crew.kill()


async def _both(stage: Stage, crews: dict[str, nodes.Crew]) -> docs_judge.Passes:
    await _start(stage, crews)
    began_ms = _wall_ms()
    seeds = "".join(f"{site.start}\n" for site in docs_web.SITES)
    stage.tell((await asyncio.to_thread(stage.command, "seed", "-", stdin=seeds)).stdout.strip())
    loss = await _first(stage, crews)
    ended_ms = _wall_ms()
    await _drain(stage, crews)
    again_ms = _wall_ms()
    await _start(stage, crews)
    await _second(stage, crews, again_ms)
    last_ms = _wall_ms()
    await _drain(stage, crews)
    return docs_judge.Passes(began_ms, ended_ms, again_ms, last_ms, loss)


async def _start(stage: Stage, crews: dict[str, nodes.Crew]) -> None:
    for node, crew in crews.items():
        crew.start(node)

    def joined() -> bool:
        _told_ends(crews, "before it was told to")
        return len(_members(stage)) == len(NODES)

    await _until(stage, "three members", joined, limit_s=60)
    stage.tell("three nodes are members")


async def _first(stage: Stage, crews: dict[str, nodes.Crew]) -> docs_judge.Loss:
    """Until nothing is pending; half way through the largest site its owner's lease is taken away."""
    limit_s = stage.interval_s  # then pages come again, and the passes cannot be told apart
    larger = max(docs_web.SITES, key=lambda site: site.files)
    half = larger.files // 2
    await _until(stage, f"{half} pages of {larger.name}", lambda: _pages_seen(stage, larger) >= half, limit_s=limit_s)
    loss = await asyncio.to_thread(_revoke, stage, larger)
    stage.tell(f"{half:,} pages of {larger.name} are done; revoked {loss.node}'s lease")
    store = await frontier.Frontier.open(stage.where.redis, CLUSTER)
    retries = redis.asyncio.Redis.from_url(stage.where.redis)
    names = keys.RedisKeys(CLUSTER)
    try:
        deadline_s = time.monotonic() + limit_s
        while True:
            looks = {site.name: await store.look(site.name) for site in docs_web.SITES}
            later = {name: await retries.zcard(names.later(name)) for name in looks}
            left = {name: look and look["pending"] for name, look in looks.items()}
            if not any(left.values()) and not any(later.values()):
                break
            if time.monotonic() > deadline_s:
                raise Ended(f"after {limit_s:.0f} s still pending: {left}, to be tried again: {later}")
            await asyncio.sleep(0.5)
    finally:
        await retries.aclose()
        await store.close()
    stage.tell(f"nothing is pending; {len(stage.answers()):,} requests")
    _told_ends(crews, "before it was told to")
    return loss


def _revoke(stage: Stage, site: docs_web.Site) -> docs_judge.Loss:
    owner = json.loads(stage.command("owner", site.start, "--json").stdout)["node"]
    store = etcd.Etcd(stage.where.etcd)
    try:
        lease = store.look(keys.EtcdKeys(CLUSTER)).members[owner].lease
        now_ms = _wall_ms()
        assert store.revoke(lease)
    finally:
        store.close()
    return docs_judge.Loss(site.name, owner, now_ms)


async def _second(stage: Stage, crews: dict[str, nodes.Crew], again_ms: int) -> None:
    """Until every URL that was answered in the first pass was asked for again."""
    known = {one.url for one in stage.answers() if not one.is_robots and one.start_ms < again_ms}

    def left() -> int:
        return len(known - {one.url for one in stage.answers() if one.start_ms >= again_ms})

    def done() -> bool:
        _told_ends(crews, "before it was told to")
        return not left()

    try:
        await _until(stage, "every URL again", done, limit_s=2.5 * stage.interval_s, every_s=1.0)
    except Ended as end:
        raise Ended(f"{end}; {left():,} of {len(known):,} were not asked for") from end
    stage.tell(f"all {len(known):,} URLs were asked for again")


async def _drain(stage: Stage, crews: dict[str, nodes.Crew]) -> None:
    for crew in crews.values():
        crew.drain()
    await _until(stage, "the drain", lambda: not any(crew.alive() for crew in crews.values()), limit_s=60)
    _told_ends(crews, "at the drain")
    stage.tell("drained")


def _told_ends(crews: dict[str, nodes.Crew], when: str) -> None:
    """A node that ended otherwise than by a drain is a fault, even where the others went on without it."""
    for node, crew in crews.items():
        for end in crew.ended():
            if end.status or when.startswith("before"):
                words = "\n".join(crew.log(node).read_text().splitlines()[-5:])
                raise Ended(f"node {node} {end.how} {when}:\n{words}")


async def _until(
    stage: Stage, what: str, condition: Callable[[], bool], *, limit_s: float, every_s: float = 0.3
) -> None:
    deadline_s = time.monotonic() + limit_s
    while not await asyncio.to_thread(condition):
        if time.monotonic() > deadline_s:
            raise Ended(f"{time.monotonic() - stage.began_s:.0f} s: waited {limit_s:.0f} s for {what}")
        await asyncio.sleep(every_s)


def _members(stage: Stage) -> list[object]:
    found: list[object] = json.loads(stage.command("status", "--json").stdout)["nodes"]
    return found


def _pages_seen(stage: Stage, site: docs_web.Site) -> int:
    return sum(one.is_page and one.site == site.name for one in stage.answers())


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
