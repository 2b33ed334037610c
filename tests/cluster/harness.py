"""A whole cluster of real processes for one test: nodes, the web that judges them, and what may be asked of both.

It knows the product by its commands, its status endpoint, its handoff log and its keys in etcd. Every wait has a
deadline, and whatever was started is gone at the end.
"""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from coordinator import local, nodes, origin_log, seeding, small_web
from shared import agreement, clock, config, etcd, frontier, handoffs, keys, membership, placement, records, sites
from tests.cluster import web

LOOK_S = 0.03
ENDS = (None, 0, -signal.SIGKILL)  # a node runs, has drained, or was killed by the test; all else is a fault
COMMAND_S = 30.0
QUICK = {
    "CRAWLRING_MEMBERSHIP__VIEW_LEASE_S": "2.5",
    "CRAWLRING_MEMBERSHIP__REJOIN_S": "4",
}
"""Short membership times for tests of something else; whoever tests the times themselves gives its own."""

Found = TypeVar("Found")


class Request(msgspec.Struct, frozen=True):
    """One request as the web saw it."""

    boot_s: float
    wall_ms: int
    site: str
    url: str
    node: str

    @property
    def robots(self) -> bool:
        return self.url.endswith("/robots.txt")

    @property
    def slow(self) -> bool:
        return web.SLOW in self.url


@dataclass
class Node:
    """One node process."""

    id: str
    child: local.Child
    address: str

    def ready(self) -> tuple[int, str]:
        """(status, reason) of /readyz; (0, why) where nothing answers."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/readyz", timeout=2) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, str(json.load(error)["reason"])
        except OSError as error:
            return 0, str(error)

    def log(self) -> str:
        return self.child.log.read_text(errors="replace")


@dataclass
class Cluster:
    """Built by `running`."""

    folder: Path
    etcd: str
    redis: str
    name: str
    graph: small_web.Web
    web: local.Server
    delay_s: float
    environ: Mapping[str, str]
    options: Sequence[str]
    nodes: dict[str, Node] = field(default_factory=dict)
    started: list[local.Child] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    _read_bytes: int = 0

    def __post_init__(self) -> None:
        self.ledger = origin_log.Ledger(self.graph, minimum_s=self.delay_s)
        self.keys = keys.EtcdKeys(self.name)

    def settings(self) -> config.Config:
        """As the nodes have them."""
        places = {"etcd": self.etcd, "redis": self.redis, "cluster": self.name, "politeness.delay_min_s": self.delay_s}
        return config.load(environ=self.environ, options=places)

    def found(self) -> None:
        """Say that nobody has acted before, as `crawlring up` does: else the first view waits VL + G."""
        settings = self.settings()
        digest = sites.Sites(settings.sites.private_suffixes).digest
        with contextlib.closing(etcd.Etcd(self.etcd)) as store:
            assert store.found(self.keys, membership.fingerprint(settings, sites_digest=digest))

    # -- processes

    def start(
        self,
        node: str,
        *options: str,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        host: str = local.LOOPBACK,
        reach: str = local.LOOPBACK,
    ) -> Node:
        """Start a node; `prefix` stands before its command, `host` is its own address, `reach` that of the rest."""
        address = f"{host}:{local.free_port()}"
        place = nodes.Place(
            etcd=self.etcd.replace(local.LOOPBACK, reach),
            redis=self.redis.replace(local.LOOPBACK, reach),
            cluster=self.name,
            out=self.folder / "out",
            logs=self.folder / "logs",
            arguments=(
                f"--user-agent=Test/1.0 (+https://localhost/{node})",
                f"--delay={self.delay_s}",
                f"--connect-to={self.web.address.replace(local.LOOPBACK, reach)}",
                f"--listen={address}",
                *self.options,
                *options,
            ),
            environ={**self.environ, **(environ or {})},
        )
        place.logs.mkdir(parents=True, exist_ok=True)
        child = local.Child(
            [*prefix, *nodes.node_command(place, node)],
            log=place.logs / f"{node}.log",
            environ=nodes.node_environ(place),
        )
        self.started.append(child)
        self.nodes[node] = Node(node, child, address)
        return self.nodes[node]

    def start_all(self, *names: str) -> None:
        """Start nodes and wait until one view has them all."""
        if not self.nodes:
            self.found()
        for name in names:
            self.start(name)
        self.until(lambda: set(names) <= set(self.members()), 30, f"{names} are members")

    def command(self, *arguments: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run `crawlring ARGUMENTS` as an operator would."""
        line = [sys.executable, "-P", "-m", "coordinator.cli", *arguments]
        where = [f"--etcd={self.etcd}", f"--redis={self.redis}", f"--cluster={self.name}"]
        done = subprocess.run(
            [*line, *where], env=nodes.packages(), capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        assert status is None or done.returncode == status, f"{arguments}: {done.returncode}: {done.stderr}"
        return done

    def seed(self) -> None:
        """Offer the seeds, as `crawlring seed` does."""
        report = asyncio.run(seeding.seed_lines(self.settings(), self.graph.seeds(), 5))
        assert report.accepted == len(self.graph.seeds()), report

    def drain(self, *names: str, within_s: float = 25) -> None:
        """SIGTERM to these nodes, or all that run; each must exit 0."""
        asked = [self.nodes[name] for name in names] if names else list(self.nodes.values())
        asked = [node for node in asked if node.child.poll() is None]
        for node in asked:
            node.child.signal(signal.SIGTERM)
        deadline = time.monotonic() + within_s
        for node in asked:
            status = node.child.wait(max(0.0, deadline - time.monotonic()))
            assert status == 0, f"{node.id}: exit status {status} after SIGTERM\n{node.log()[-3000:]}"

    # -- questions

    def until(self, condition: Callable[[], Found | None], within_s: float, what: str) -> Found:
        """Wait for a condition, reading the web's log meanwhile; its first true answer is returned."""
        deadline = time.monotonic() + within_s
        while True:
            self.read()
            found = condition()
            if found:
                return found
            broken = [node.id for node in self.nodes.values() if node.child.poll() not in ENDS]
            assert not broken, f"{broken} ended while waiting: {what}\n{self.told()}"
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}\n{self.told()}"
            time.sleep(LOOK_S)

    def told(self) -> str:
        """What a failure needs: where everything stands."""
        ends = "\n".join(f"--- {node.id} ({node.child.poll()})\n{node.log()[-1500:]}" for node in self.nodes.values())
        found = f"{self.ledger.found} of {self.ledger.wanted} pages, {self.ledger.requests} requests"
        return f"{found}; missing: {self.ledger.missing()[:5]}\n{ends}"

    def read(self) -> None:
        """Take in the whole lines that the web has logged since."""
        with (self.web.data / web.LOG).open("rb") as log:
            log.seek(self._read_bytes)
            for raw in log:
                if not raw.endswith(b"\n"):
                    return
                self._read_bytes += len(raw)
                self.ledger.add(raw)
                self.requests.append(msgspec.json.decode(raw, type=Request))

    def part_done(self, share: float) -> bool:
        return self.ledger.found >= share * self.ledger.wanted

    def look(self) -> agreement.Snapshot:
        """The keys of this cluster in etcd."""
        with contextlib.closing(etcd.Etcd(self.etcd)) as store:
            return store.look(self.keys)

    def members(self) -> dict[str, records.Member]:
        """The members of the newest view."""
        view = self.look().view
        return dict(view.members) if view else {}

    def owned(self) -> dict[str, list[str]]:
        """The sites of each member, by the newest view."""
        seen = self.look()
        assert seen.view is not None
        place = placement.Placement.of(seen.view, seen.epoch)
        found: dict[str, list[str]] = {node: [] for node in seen.view.members}
        for site in self.graph.sites:
            owner = place.owner(site.name)
            if owner is not None:
                found[owner].append(site.name)
        return found

    def handoffs(self) -> list[records.Handoff]:
        async def read(store: frontier.Frontier) -> list[records.Handoff]:
            return [entry async for entry in handoffs.read(store)]

        return self.ask(read)

    def sites(self) -> dict[str, dict[str, Any]]:
        """The record of every site."""

        async def read(store: frontier.Frontier) -> dict[str, dict[str, Any]]:
            return {site.name: await store.look(site.name) or {} for site in self.graph.sites}

        return self.ask(read)

    def held_by(self, node: str) -> set[str]:
        """Sites whose record names this node as the owner."""
        return {site for site, look in self.sites().items() if look.get("owner") == node}

    def ask(self, question: Callable[[frontier.Frontier], Coroutine[Any, Any, Found]]) -> Found:
        """Ask the store something, over a connection of its own."""

        async def asked() -> Found:
            store = await frontier.Frontier.open(self.redis, self.name)
            try:
                return await question(store)
            finally:
                await store.close()

        return asyncio.run(asked())

    def crawl_lines(self) -> list[records.CrawlLine]:
        """What the nodes themselves logged; the unfinished last line of a killed node is left out."""
        raws = [
            raw
            for path in (self.folder / "out").glob("crawl-*.jsonl")
            for raw in path.read_bytes().splitlines(keepends=True)
        ]
        return [msgspec.json.decode(raw, type=records.CrawlLine) for raw in raws if raw.endswith(b"\n")]

    def slow_in_flight(self, *, within_s: float = 0.5) -> Request:
        """Wait until a slow page has been asked for a moment ago, and so has its answer to come."""

        def found() -> list[Request]:
            earliest_s = now_s() - within_s
            return [one for one in self.requests if one.slow and one.boot_s > earliest_s]

        return self.until(found, 30, "a slow page is in flight")[-1]

    def by(self, node: str, *, since_s: float = 0.0, until_s: float = float("inf")) -> list[Request]:
        """Requests of a node in a stretch of boot time."""
        return [one for one in self.requests if one.node == node and since_s <= one.boot_s < until_s]

    def to(self, site: str, *, since_ms: float = 0.0) -> list[Request]:
        return [one for one in self.requests if one.site == site and one.wall_ms >= since_ms]


@contextlib.contextmanager
def running(
    folder: Path,
    *,
    etcd: str,
    redis: str,
    name: str,
    site_count: int = 24,
    pages: int = 9,
    delay_s: float = 0.4,
    slow_s: float = 1.5,
    environ: Mapping[str, str] = QUICK,
    options: Sequence[str] = (),
) -> Iterator[Cluster]:
    """A web, and a cluster without nodes yet; nothing is left of either at the exit."""
    server = web.process(folder / "web", sites=site_count, pages=pages, slow_s=slow_s)
    graph = web.build(sites=site_count, pages=pages)
    server.start()
    cluster = Cluster(folder, etcd, redis, name, graph, server, delay_s, environ, options)
    try:
        yield cluster
    finally:
        for child in cluster.started:
            child.kill()
        server.kill()


def now_s() -> float:
    return clock.boot_s()
