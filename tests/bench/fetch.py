"""What one fetch of ours costs beside a bare aiohttp session's, in CPU of the client and in the same run.

nginx on the other core serves pages of 20 KB to any host. Each round measures all clients one after another, each on
the same requests, so that a slow minute of the machine is everybody's; the figures are medians over the rounds, and
the ratio is the median of each round's own. Loads: `keep-alive` (each of 64 workers stays on its host), `mix` (a host
by zipf's law for each request, of 1,000), `close` (the origin closes after each answer), `https` (keep-alive) and `https close`.
Run it as `python -m tests.bench.fetch [--rounds 7] [--requests 3000] [--json FILE]`.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import platform
import random
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import abc

from node import decode, dns, fetch, guard
from shared import clock, config, records
from tests.node import origins

PAGES = 500
PAGE_BYTES = 20_000
HOSTS = 1_000
ZIPF = 1.05
WORKERS = 64
WARM_UP = 300
AGENT = "crawlring-bench/1.0 (+https://example.org/bot)"
LOADS = ("keep-alive", "mix", "close", "https", "https close")
CLIENTS = ("aiohttp", "aiohttp tuned", "ours")
NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; default_type text/html;
  open_file_cache max=5000 inactive=1h; open_file_cache_valid 1h;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen 127.0.0.1:{plain} backlog=4096; root {folder}/www; keepalive_timeout 600s; }}
  server {{ listen 127.0.0.1:{close} backlog=4096; root {folder}/www; keepalive_timeout 0; }}
  ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
  server {{ listen 127.0.0.1:{tls} ssl backlog=4096; root {folder}/www; keepalive_timeout 600s; }}
  server {{ listen 127.0.0.1:{tls_close} ssl backlog=4096; root {folder}/www; keepalive_timeout 0; }}
}}
"""

Get = Callable[[str], Awaitable[None]]


@dataclass
class Origin:
    """nginx's ports, and the authority that signed its certificate."""

    plain: int
    close: int
    tls: int
    tls_close: int
    trust: ssl.SSLContext

    def port(self, load: str) -> int:
        return {"close": self.close, "https": self.tls, "https close": self.tls_close}.get(load, self.plain)


@contextlib.contextmanager
def serving() -> Iterator[Origin]:
    """nginx on loopback, on the second core where there is one."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        _, trust = origins.certificate(folder, host="*.bench.test")
        (folder / "www").mkdir()
        for page in range(PAGES):
            (folder / "www" / f"{page}.html").write_bytes(b"<p>text of a page</p>\n" * (PAGE_BYTES // 22))
        ports = _free_ports(4)
        text = NGINX.format(folder=folder, plain=ports[0], close=ports[1], tls=ports[2], tls_close=ports[3])
        (folder / "nginx.conf").write_text(f"user root;{text}" if os.geteuid() == 0 else text)
        process = subprocess.Popen([program, "-p", name, "-c", "nginx.conf"], stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        deadline_s = clock.boot_s() + 10
        while not _listens(ports[0]):
            if clock.boot_s() > deadline_s:
                raise SystemExit("nginx does not start")
            time.sleep(0.02)
        if (os.cpu_count() or 1) > 1:
            for child in _family(process.pid):
                os.sched_setaffinity(child, {1})
            os.sched_setaffinity(0, {0})
        yield Origin(*ports, trust)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in held]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


class ToOrigin(abc.AbstractResolver):
    """Every host is the one origin."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[abc.ResolveResult]:
        del port, family
        return [abc.ResolveResult(hostname=host, host="127.0.0.1", port=self._port, family=2, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def bare(origin: Origin, load: str, *, tuned: bool) -> AsyncIterator[Get]:
    """A session as the manual has it, or with all that costs nothing to leave out."""
    connector = aiohttp.TCPConnector(
        limit=WORKERS, resolver=ToOrigin(origin.port(load)), ssl=origin.trust, keepalive_timeout=600
    )
    options: dict[str, Any] = {"headers": {"User-Agent": AGENT, "Accept-Encoding": decode.ACCEPTED}}
    if tuned:
        options |= {
            "cookie_jar": aiohttp.DummyCookieJar(),
            "timeout": aiohttp.ClientTimeout(total=None),
            "read_bufsize": 2**18,
            "auto_decompress": False,
        }
    async with aiohttp.ClientSession(connector=connector, **options) as session:
        import yarl  # noqa: PLC0415 - aiohttp's own, and only here

        async def get(url: str) -> None:
            async with session.get(yarl.URL(url, encoded=True) if tuned else url) as response:
                body = await response.read()
                assert len(body) > PAGE_BYTES - 22

        yield get


@contextlib.asynccontextmanager
async def ours(origin: Origin, load: str) -> AsyncIterator[Get]:
    """`Fetcher.fetch` as the crawler calls it, under a permit that is asked and always lets pass."""
    fetches = fetch.Fetcher(
        user_agent=AGENT,
        limits=config.Limits(),
        resolver=dns.Resolver(connect_to=f"127.0.0.1:{origin.port(load)}"),
        idle_max=2 * WORKERS,
        tls=origin.trust,
    )
    await fetches.start()

    async def get(url: str) -> None:
        site = url.split("/", 3)[2]
        permit = guard.Permit(
            site=site, may_start=lambda: None, may_send=lambda: None, clock=clock.boot_s, on_late=lambda _: None
        )
        answer = await fetches.fetch(url, permit=permit)
        assert isinstance(answer.outcome, records.Fetched), answer.outcome
        assert answer.body_bytes > PAGE_BYTES - 22

    try:
        yield get
    finally:
        await fetches.close()


def client(name: str, origin: Origin, load: str) -> contextlib.AbstractAsyncContextManager[Get]:
    return ours(origin, load) if name == "ours" else bare(origin, load, tuned=name == "aiohttp tuned")


def urls_of(load: str, count: int, seed: int) -> list[str]:
    """What one client asks for in one round."""
    chance = random.Random(seed)
    scheme = "https" if load.startswith("https") else "http"
    if load == "mix":
        weights = list(itertools.accumulate(1 / rank**ZIPF for rank in range(1, HOSTS + 1)))
        hosts = chance.choices(range(HOSTS), cum_weights=weights, k=count)
    else:
        hosts = [number % WORKERS for number in range(count)]
    return [f"{scheme}://h{host}.bench.test/{chance.randrange(PAGES)}.html" for host in hosts]


async def cpu_us(get: Get, asked: Sequence[str]) -> float:
    """CPU of this process for each request, microseconds. A host is asked one thing at a time, as the crawler does."""
    lines: list[list[str]] = [[] for _ in range(WORKERS)]
    for url in asked:
        lines[int(url.split(".")[0].rpartition("/h")[2]) % WORKERS].append(url)

    async def work(line: Sequence[str]) -> None:
        for url in line:
            await get(url)

    begun = time.process_time()
    await asyncio.gather(*(work(line) for line in lines))
    return (time.process_time() - begun) / len(asked) * 1e6


@dataclass
class Row:
    """One client under one load, a figure a round."""

    load: str
    client: str
    cpu_us: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    """To bare aiohttp in the same round."""


async def measure(origin: Origin, *, loads: Sequence[str], rounds: int, requests: int) -> list[Row]:
    rows = []
    for load in loads:
        of = {name: Row(load, name) for name in CLIENTS}
        async with contextlib.AsyncExitStack() as stack:
            gets = {name: await stack.enter_async_context(client(name, origin, load)) for name in CLIENTS}
            for name in CLIENTS:
                await cpu_us(gets[name], urls_of(load, WARM_UP, 0))
            for number in range(rounds):
                asked = urls_of(load, requests, number)
                for name in CLIENTS if number % 2 == 0 else reversed(CLIENTS):
                    of[name].cpu_us.append(await cpu_us(gets[name], asked))
                for row in of.values():
                    row.ratio.append(row.cpu_us[-1] / of["aiohttp"].cpu_us[-1])
        rows += of.values()
    return rows


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'load':<11} {'client':<14} {'CPU us a request':>24} {'ratio to aiohttp':>22}"]
    for row in rows:
        spread = f"{statistics.median(row.cpu_us):.0f} [{min(row.cpu_us):.0f}-{max(row.cpu_us):.0f}]"
        ratio = f"{statistics.median(row.ratio):.2f} [{min(row.ratio):.2f}-{max(row.ratio):.2f}]"
        lines.append(f"{row.load:<11} {row.client:<14} {spread:>24} {ratio:>22}")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    return {
        "python": sys.version.split()[0],
        "aiohttp": aiohttp.__version__,
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with serving() as origin:
        rows = asyncio.run(measure(origin, loads=asked.loads.split(","), rounds=asked.rounds, requests=asked.requests))
    print(" ".join(f"{name} {value}" for name, value in machine().items()))
    print(table(rows))
    if asked.json:
        found = [{"load": row.load, "client": row.client, "cpu_us": row.cpu_us, "ratio": row.ratio} for row in rows]
        asked.json.write_text(json.dumps({"name": "fetch", "rows": found, "machine": machine()}, indent=1))


if __name__ == "__main__":
    main()
