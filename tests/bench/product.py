"""crawlring in the measurement: `crawlring node` as a user starts it, with real stores, its pages counted in its log.

Nothing is off: the politeness engine runs (with delays of a microsecond), robots.txt of each origin is asked for and
kept, every page goes to the JSON Lines file and every visit to the crawl log, and the store has its append-only file.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from coordinator import local, nodes, seeding, up
from shared import config
from tests.bench import readings, report, web

CLUSTER, NODE = "bench", "n1"
POLL_S = 0.02
RUN_S = 600.0
ENVIRON = {
    "CRAWLRING_POLITENESS__DELAY_MIN_S": "0.000001",
    "CRAWLRING_POLITENESS__DURATION_FACTOR": "0",
    "CRAWLRING_IDENTITY__USER_AGENT": "crawlring-bench/1.0 (+https://localhost/bench)",
    "CRAWLRING_NODE__CONCURRENCY": "64",
}


@dataclass(slots=True)
class Log:
    """The crawl log so far: lines of pages, and of robots.txt."""

    path: Path
    pages: int = 0
    robots: int = 0
    _file: IO[bytes] | None = None

    def read(self) -> int:
        """Take what has been written since; returns the number of pages."""
        if self._file is None:
            if not self.path.exists():
                return 0
            self._file = self.path.open("rb")
        new = self._file.read()
        robots = new.count(b'"visit":"robots"')
        self.robots += robots
        self.pages += new.count(b"\n") - robots
        return self.pages


@dataclass(slots=True)
class Play:
    """A node at work."""

    where: up.Stores
    child: local.Child
    log: Log
    out: Path
    store: local.Server = field(init=False)

    def __post_init__(self) -> None:
        self.store = next(server for server in self.where.ours if server.name == "valkey")

    def until(self, pages: int, *, limit_s: float = RUN_S) -> None:
        """Wait for this many pages in the crawl log; TimeoutError with the node's last words if they do not come."""
        deadline = time.monotonic() + limit_s
        while self.log.read() < pages:
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"crawlring stopped at {self.log.pages} pages of {pages}: {self.child.last_words()}")
            time.sleep(POLL_S)

    def mark(self) -> tuple[report.Mark, readings.Store]:
        """All counts at this moment."""
        pages = self.log.read()
        now = readings.process(self.child.pid)
        counts = readings.store(self.store.port, self.store.pid)
        return report.Mark(pages, now.wall_s, now.cpu_s, now.rss_bytes, pages + self.log.robots), counts


@contextlib.contextmanager
def playing(folder: Path, origin: web.Origin, *, wrap: Callable[[Sequence[str]], list[str]] = list) -> Iterator[Play]:
    """A fresh cluster of one node that crawls; `wrap` may put a profiler into its command. Killed at the exit."""
    settings = config.load(environ=ENVIRON, options={"cluster": CLUSTER, "node.id": NODE})
    with contextlib.ExitStack() as stack:
        with contextlib.redirect_stdout(None):
            where = stack.enter_context(up.stores(folder, settings=settings))
        place = nodes.Place(
            etcd=where.etcd,
            redis=where.redis,
            cluster=CLUSTER,
            out=folder / "out",
            logs=folder,
            arguments=(f"--connect-to={origin.address}", "--allow-private"),
            environ=ENVIRON,
        )
        options = {"etcd": where.etcd, "redis": where.redis, "cluster": CLUSTER}
        asyncio.run(seeding.seed_lines(config.load(environ=ENVIRON, options=options), origin.seeds()))
        command = [*readings.pinned(readings.CLIENT_CORE), *wrap(nodes.node_command(place, NODE))]
        child = local.Child(command, log=folder / f"{NODE}.log", environ=nodes.node_environ(place))
        try:
            yield Play(where, child, Log(folder / "out" / f"crawl-{NODE}.jsonl"), folder / "out")
        finally:
            child.kill()


def run(folder: Path, origin: web.Origin, *, first: int, last: int) -> report.Sample:
    """From the first page measured to the last."""
    with playing(folder, origin) as play:
        play.until(first)
        begin, before = play.mark()
        play.until(last)
        end, after = play.mark()
    return report.sample(begin, end, before, after)
