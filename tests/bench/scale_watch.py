"""What is seen while a large cluster works: each second the nodes' reports, processes, store and etcd; then the logs.

One thread samples; all moments are boot seconds of this machine.
"""

import asyncio
import contextlib
import re
import socket
import threading
import urllib.request
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import IO, Self

from coordinator import local, nodes
from shared import clock, errors, frontier, records
from tests.bench import readings

SAMPLE_S = 1.0
PAGE = 1_000  # entries of the handoff log read at once
SCRIPTS = ("evalsha", "eval", "fcall")


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything at one moment, as counts since the start."""

    at_s: float
    cpu_s: Mapping[str, float]
    """By process: the nodes, `store`, `etcd`, `origin`."""
    rss_bytes: Mapping[str, int]
    reports: Mapping[str, records.NodeReport]
    calls: Mapping[str, int]
    """The store's commands by name; those inside scripts count too."""
    trips: int
    store_bytes: int
    etcd_calls: Mapping[str, int]
    """By method."""

    def scripts(self) -> int:
        return sum(self.calls.get(name, 0) for name in SCRIPTS)


@dataclass
class Watch:
    """A thread that samples until it is closed; a context manager."""

    servers: Mapping[str, local.Server]
    """`store`, `etcd`, `origin`."""
    crew: nodes.Crew
    names: tuple[str, ...]
    redis: str
    cluster: str
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._forever()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def last(self) -> Sample | None:
        return self.samples[-1] if self.samples else None

    async def _forever(self) -> None:
        desk = await frontier.Frontier.open(self.redis, self.cluster, call_s=5.0)
        try:
            while not self._over.is_set():
                with contextlib.suppress(errors.StoreUnavailable, OSError):
                    self.samples.append(await self._sample(desk))
                await asyncio.sleep(SAMPLE_S)
        finally:
            await desk.close()

    async def _sample(self, desk: frontier.Frontier) -> Sample:
        reports = await desk.reports(self.names)
        pids = {name: server.pid for name, server in self.servers.items()}
        pids |= {name: self.crew.pid(name) for name in self.crew.alive()}
        seen = {name: readings.process(pid) for name, pid in pids.items()}
        calls, trips, used = _store(self.servers["store"].port)
        return Sample(
            at_s=clock.boot_s(),
            cpu_s={name: one.cpu_s for name, one in seen.items()},
            rss_bytes={name: one.rss_bytes for name, one in seen.items()},
            reports=reports,
            calls=calls,
            trips=trips,
            store_bytes=used,
            etcd_calls=_etcd(self.servers["etcd"].port),
        )


def _store(port: int) -> tuple[dict[str, int], int, int]:
    with socket.create_connection((local.LOOPBACK, port), timeout=5) as connection:
        connection.sendall(b"INFO commandstats\r\nINFO stats\r\nINFO memory\r\nQUIT\r\n")
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    text = answer.decode()
    calls = {name: int(count) for name, count in re.findall(r"cmdstat_([\w|]+):calls=(\d+)", text)}
    counts = dict(re.findall(r"\r?\n(total_reads_processed|used_memory):(\d+)", text))
    return calls, int(counts["total_reads_processed"]), int(counts["used_memory"])


def _etcd(port: int) -> dict[str, int]:
    """Calls that etcd has handled, and messages of its streams (keep-alives, watch events), by method."""
    with urllib.request.urlopen(f"http://{local.LOOPBACK}:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found: Counter[str] = Counter()
    pattern = r'^grpc_server_(handled|msg_sent)_total\{.*?grpc_method="(\w+)".*?\} ([\d.e+]+)$'
    for kind, method, count in re.findall(pattern, text, re.MULTILINE):
        if (kind == "msg_sent") == (method in {"LeaseKeepAlive", "Watch"}):
            found[method] += int(float(count))
    return dict(found)


# --- the origin's log -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Requests:
    """The origin's log as far as it was read: gaps, who asked when, and first requests after a move."""

    file: IO[str]
    since_s: float = float("inf")
    """When the move began."""
    moving: Collection[str] = ()
    takers: Collection[str] = ()
    """The nodes that the moving sites go to."""
    busy: Collection[str] = ()
    count: int = 0
    smallest_gap_s: float = float("inf")
    first_s: float | None = None
    by_second: dict[tuple[str, bool], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """(node, is the site a busy one?) -> second -> requests."""
    taken_s: dict[str, float] = field(default_factory=dict)
    """Moving site -> its first request by a taker since the move."""
    _last_s: dict[str, float] = field(default_factory=dict)

    def read(self) -> int:
        """Take the lines that are whole by now; how many moving sites have been asked for."""
        while True:
            at = self.file.tell()
            line = self.file.readline()
            if not line.endswith("\n"):
                self.file.seek(at)
                return len(self.taken_s)
            moment, node, host, _ = line.split(" ", 3)
            self._add(float(moment), node, host.removeprefix("www."))

    def _add(self, at_s: float, node: str, site: str) -> None:
        self.count += 1
        self.first_s = at_s if self.first_s is None else self.first_s
        if site in self._last_s:
            self.smallest_gap_s = min(self.smallest_gap_s, at_s - self._last_s[site])
        self._last_s[site] = at_s
        self.by_second[node, site in self.busy][int(at_s)] += 1
        if at_s >= self.since_s and node in self.takers and site in self.moving:
            self.taken_s.setdefault(site, at_s)

    def rate(self, node: str, begin_s: float, end_s: float, *, busy: bool) -> float:
        """Requests a second of a node in the whole seconds between two moments."""
        seconds = range(int(begin_s) + 1, max(int(end_s), int(begin_s) + 2))
        return sum(self.by_second[node, busy][second] for second in seconds) / len(seconds)


# --- the handoff log ------------------------------------------------------------------------------------------------


async def moves(redis: str, cluster: str, *, since_ms: int) -> AsyncIterator[records.Handoff]:
    """The entries written since a moment of the store."""
    desk = await frontier.Frontier.open(redis, cluster, call_s=30.0)
    after = f"{since_ms}-0"
    try:
        while entries := await desk.read_handoffs(after, at_most=PAGE):
            after = entries[-1][0]
            for _, entry in entries:
                yield entry
    finally:
        await desk.close()
