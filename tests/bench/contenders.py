"""Who is measured, and one run of each: the same web, the same start pages, from its 200th page to its last.

A peer's script runs in its own environment on the client's core and tells its own CPU at both pages
(tests/bench/peers/meter.py); crawlring is in tests/bench/product.py. Everything else has the other core.
"""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from coordinator import local, tether
from shared import errors
from tests.bench import environments, product, readings, report, web

FIRST = 200
CONCURRENCY = 64
RUN_S = 600.0  # the slowest takes 15 s on a machine of its own, and one that is busy may give it a tenth
WALK = 60_000  # URLs that the bare loops are given


@dataclass(frozen=True, slots=True)
class Contender:
    """A program to measure; without a script it is crawlring."""

    name: str
    about: str
    pages: int
    """Measured in a run: five to ten seconds of CPU for each, so that a round of all takes about three minutes."""
    script: str = ""
    arguments: Sequence[str] = ()
    environment: str = ""
    stored: bool = False
    """Does it keep its queue in Redis?"""
    floor: float = 0.0
    aim: float = 0.0
    """Pages per CPU-second of crawlring, as multiples of its own: what is asked for at least, and aimed at."""


CONTENDERS = (
    Contender("crawlring", "`crawlring node`, whole: etcd, Valkey, politeness, robots, JSON Lines, crawl log", 10_000),
    Contender(
        *(
            "scrapy",
            "a spider that follows every `a::attr(href)`; no robots.txt, no logging",
            1_000,
            "scrapy_crawl.py",
            ["minimal"],
            "scrapy",
        ),
        floor=8,
        aim=12,
    ),
    Contender(
        *("scrapy-redis", "the same with queue and filter in Redis", 500, "scrapy_crawl.py", ["redis"]),
        environment="scrapy-redis",
        stored=True,
        floor=10,
        aim=15,
    ),
    Contender(
        *("crawlee", "ParselCrawler with impit, queue in memory", 1_500, "crawlee_parsel.py", [], "crawlee"),
        floor=4,
        aim=6,
    ),
    Contender(
        *("naive", "aiohttp, BRPOP, BeautifulSoup, a SADD a link", 800, "naive_queue.py", [], "naive"),
        stored=True,
        floor=12,
        aim=18,
    ),
    Contender("bare-fetch", "aiohttp alone, over a given list", 20_000, "bare_loop.py", ["fetch"], "bare"),
    Contender(
        *("bare-parse", "aiohttp and lexbor, over a given list", 12_000, "bare_loop.py", ["parse"], "bare"),
        floor=0.25,
        aim=0.40,
    ),
)
BY_NAME = {contender.name: contender for contender in CONTENDERS}


class Failed(Exception):
    """A contender did not come to its last page; its text says why."""


def run(contender: Contender, origin: web.Origin, *, pages: int | None = None) -> report.Sample:
    """One run in a folder of its own; NotInstalled or Failed say why there is none."""
    last = FIRST + (pages or contender.pages)
    with tempfile.TemporaryDirectory(prefix="crawlring-bench-") as folder:
        if not contender.script:
            try:
                return product.run(Path(folder), origin, first=FIRST, last=last)
            except (TimeoutError, errors.CrawlError) as error:
                raise Failed(str(error)) from error
        return _peer(contender, Path(folder), origin, last)


def _peer(contender: Contender, folder: Path, origin: web.Origin, last: int) -> report.Sample:
    python = environments.python_of(contender.environment)
    with ExitStack() as stack:
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "BENCH_FIRST": str(FIRST),
            "BENCH_LAST": str(last),
            "BENCH_SEEDS": " ".join(origin.seeds()),
            "BENCH_CONCURRENCY": str(CONCURRENCY),
            "BENCH_ORIGIN": origin.address,
        }
        store = None
        if contender.stored:
            store = stack.enter_context(local.running(local.valkey(folder / "valkey")))
            environ["BENCH_REDIS"] = local.redis_url(store)
        if contender.environment == "bare":
            (folder / "urls").write_text("\n".join(origin.walk(max(WALK, 2 * last))))
            environ["BENCH_URLS"] = str(folder / "urls")
        script = environments.PEERS / contender.script
        # Killed with this program, however that ends.
        tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid())]
        command = [*tied, *readings.pinned(readings.CLIENT_CORE), str(python), str(script), *contender.arguments]
        said = stack.enter_context((folder / "stderr").open("w+"))
        child = stack.enter_context(
            subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=said, text=True)
        )
        stack.callback(child.kill)
        deadline = time.monotonic() + RUN_S * max(1.0, last / (FIRST + contender.pages))
        marks = [_mark(child, store, deadline) for _ in range(2)]
        if None in marks:
            said.seek(0)
            words = said.read().strip().splitlines()[-3:]
            raise Failed(f"{contender.name} did not come to page {last}: {' / '.join(words) or 'it said nothing'}")
    (first, before), (end, after) = [mark for mark in marks if mark is not None]
    return report.sample(first, end, before, after)


def _mark(
    child: "subprocess.Popen[str]", store: local.Server | None, deadline: float
) -> tuple[report.Mark, readings.Store | None] | None:
    """The next line of a peer's meter with the store's counts at that moment; None if none comes in time."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            line = child.stdout.readline()
            if not line:
                return None
            if line.startswith("{"):
                counts = readings.store(store.port, store.pid) if store else None
                return report.Mark(**json.loads(line)), counts
    return None
