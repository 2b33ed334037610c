"""The hosts of one torture run: etcd, the store, the web and the nodes, each on a machine of its own.

It starts, breaks and mends what it is told to, and keeps the books of what ended by itself. It decides nothing.
"""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from coordinator import local, nodes, seeding, small_web
from shared import clock, config, errors, etcd, frontier, handoffs, keys, membership, records, sites
from tests.cluster import namespaces, web
from tests.torture import forest, rules, stores

CLUSTER = "torture"
NODES = ("n1", "n2", "n3", "n4")
SPARES = ("s1", "s2")
RELAYED = "n2"  # it speaks to its stores through a relay that can lose one kind of call alone
FAKE_CLOCK = "n3"  # its wall clock can be stepped
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
ETCD_PORT = 2379
STORE_PORT = 6379
WEB_PORT = 80
SLOW_S = 1.5  # of the web's slow pages
LISTEN_PORT = 8700
LOOK_S = 0.05
COMMAND_S = 30.0
READY_S = 60.0
DRAIN_S = 45.0

Found = TypeVar("Found")
Direction = Literal["both", "out", "in"]
StoreKind = Literal["single", "cluster"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is made of; times in seconds."""

    store: StoreKind = "single"
    sites: int = 48
    pages: int = 60
    seed: int = 1
    delay_s: float = 1.0
    ttl_s: int = 4
    view_lease_s: float = 2.5
    wire_s: float = 2.25
    rejoin_s: float = 3.0

    @property
    def environ(self) -> dict[str, str]:
        """As the nodes are told."""
        return {
            "CRAWLRING_MEMBERSHIP__VIEW_LEASE_S": str(self.view_lease_s),
            "CRAWLRING_MEMBERSHIP__REJOIN_S": str(self.rejoin_s),
            # A replica may be promoted before it has what its master answered: only strict waits for it.
            "CRAWLRING_DURABILITY": "strict" if self.store == "cluster" else "default",
        }


@dataclass(frozen=True, slots=True)
class End:
    """A node process that ended: as it was told to, or by itself."""

    node: str
    status: int
    at_s: float
    expected: bool


class NodeHost:
    """A machine and the node process on it."""

    def __init__(self, arena: "Arena", name: str, machine: namespaces.Machine, *, out: Path) -> None:
        self.name = name
        self.machine = machine
        self.starts = 0
        self.relay = rules.Handle(arena.folder / f"relay-{name}.json") if machine.name == RELAYED else None
        self.fake_clock = machine.name == FAKE_CLOCK
        self._arena = arena
        self._out = out
        self._child: local.Child | None = None
        self._relay_child: local.Child | None = None
        self._told = False  # to end
        self._lock = threading.Lock()  # faults start nodes from threads of their own
        self._offset = arena.folder / f"clock-{name}"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        return self._child.pid if self._child else 0

    def start(self, *, ends: bool = False) -> None:
        """Start the node, unless it runs; its clock is right at first. `ends`: it may find that it is not wanted."""
        with self._lock:
            self._start()
            self._told = ends

    def _start(self) -> None:
        if self.running:
            return
        self._ended()
        arena = self._arena
        self._told = False
        self.starts += 1
        place = nodes.Place(
            etcd=arena.etcd.endpoints,
            redis=arena.store.url,
            cluster=CLUSTER,
            out=self._out,
            logs=arena.folder / "logs",
            arguments=(
                f"--user-agent=Torture/1.0 (+https://localhost/{self.name})",
                f"--delay={arena.settings.delay_s}",
                f"--lease-ttl={arena.settings.ttl_s}",
                f"--connect-to={arena.web_machine.address}:{WEB_PORT}",
                f"--listen={self.machine.address}:{LISTEN_PORT}",
            ),
            environ=arena.settings.environ,
        )
        if self.relay is not None:
            place = self._through_relay(place, self.relay)
        environ = nodes.node_environ(place)
        if self.fake_clock:
            self._offset.write_text("+0\n")
            environ |= {
                "LD_PRELOAD": FAKETIME,
                "FAKETIME_TIMESTAMP_FILE": str(self._offset),
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_NO_CACHE": "1",
            }
        place.logs.mkdir(parents=True, exist_ok=True)
        place.out.mkdir(parents=True, exist_ok=True)
        self._child = local.Child(
            [*self.machine.prefix, *nodes.node_command(place, self.name)],
            log=place.logs / f"{self.machine.name}.log",
            environ=environ,
        )

    def _through_relay(self, place: nodes.Place, switch: rules.Handle) -> nodes.Place:
        """The node's stores at loopback addresses of its own machine, where a relay listens."""
        arena = self._arena
        here = [f"{local.LOOPBACK}:{ETCD_PORT + i}" for i in range(1, 4)]
        command = [*("--etcd", arena.etcd.endpoints, "--listen", ",".join(here), "--control", str(switch.control))]
        store = place.redis
        if arena.settings.store == "single":
            redis = f"{local.LOOPBACK}:{STORE_PORT + 1}"
            command += ["--redis", f"{arena.store_address}:{STORE_PORT}", "--redis-listen", redis]
            store = f"redis://{redis}/0"
        if self._relay_child is None or self._relay_child.poll() is not None:
            switch.clear()
            self._relay_child = local.Child(
                [*self.machine.prefix, sys.executable, "-P", "-m", "tests.torture.relay", *command],
                log=place.logs.parent / f"relay-{self.name}.log",
                environ=nodes.packages(),
            )
        return replace(place, etcd=",".join(here), redis=store)

    def kill(self) -> None:
        """SIGKILL."""
        self._told = True
        if self._child is not None:
            self._child.kill()

    def term(self) -> None:
        """SIGTERM: it drains, and ends by itself."""
        self._told = True
        if self._child is not None:
            self._child.signal(signal.SIGTERM)

    def stop(self) -> None:
        """SIGSTOP."""
        if self._child is not None:
            self._child.signal(signal.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT."""
        if self._child is not None:
            self._child.signal(signal.SIGCONT)

    def wait(self, timeout_s: float) -> int | None:
        """The exit status, or None if it still runs."""
        return self._child.wait(timeout_s) if self._child is not None else None

    def step_clock(self, seconds: float) -> None:
        """Let its wall clock go wrong by so much; 0 puts it right."""
        assert self.fake_clock, f"{self.name} has the machine's own clock"
        self._offset.write_text(f"{seconds:+g}\n")

    def ready(self) -> bool:
        """Does /readyz say 200?"""
        try:
            return b" 200 " in _get(self.machine.address, LISTEN_PORT, "/readyz").partition(b"\r\n")[0]
        except OSError:
            return False

    def look(self) -> None:
        """Note an end, once."""
        with self._lock:
            if self._child is not None and not self.running:
                self._ended()
                self._child = None

    def close(self) -> None:
        for child in (self._child, self._relay_child):
            if child is not None:
                child.kill()

    def _ended(self) -> None:
        if self._child is None:
            return
        status = self._child.poll()
        if status is not None:
            self._arena.ends.append(End(self.name, status, clock.boot_s(), self._told))


class Web:
    """The origin, on its own machine."""

    def __init__(self, arena: "Arena") -> None:
        settings = arena.settings
        self.log = arena.folder / "web" / web.LOG
        self.log.parent.mkdir(parents=True, exist_ok=True)
        shape = {"sites": settings.sites, "pages": settings.pages, "seed": settings.seed}
        self._child = local.Child(
            [*arena.web_machine.prefix, *web.web_command(self.log, port=WEB_PORT, slow_s=SLOW_S, **shape)],
            log=arena.folder / "web" / "web.log",
            environ=nodes.packages(),
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def slow(self, on: bool) -> None:
        """Every answer takes 3 s, or is quick again."""
        self._child.signal(signal.SIGUSR1 if on else signal.SIGUSR2)

    def close(self) -> None:
        self._child.kill()


@dataclass
class Arena:
    """Built by `built`; `settings` say what stands in it."""

    folder: Path
    settings: Settings
    machines: Mapping[str, namespaces.Machine]
    graph: small_web.Web
    etcd: stores.EtcdTrio
    store: stores.Single | stores.Clustered
    nodes: dict[str, NodeHost] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    twins: list[NodeHost] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    """Nodes that a fault holds."""

    def __post_init__(self) -> None:
        self.keys = keys.EtcdKeys(CLUSTER)
        self.web_machine = self.machines["web"]
        self.web = Web(self)
        out = self.folder / "out"
        self.nodes = {name: NodeHost(self, name, self.machines[name], out=out) for name in (*NODES, *SPARES)}

    @property
    def store_address(self) -> str:
        return self.machines["redis" if self.settings.store == "single" else "redis1"].address

    def config(self) -> config.Config:
        """As the nodes have it."""
        places = {
            "etcd": self.etcd.endpoints,
            "redis": self.store.url,
            "cluster": CLUSTER,
            "politeness.delay_min_s": self.settings.delay_s,
            "membership.lease_ttl_s": self.settings.ttl_s,
        }
        return config.load(environ=self.settings.environ, options=places)

    def begin(self) -> None:
        """All nodes are members, and the seeds are queued."""
        settings = self.config()
        digest = sites.Sites(settings.sites.private_suffixes).digest
        with contextlib.closing(etcd.Etcd(self.etcd.endpoints, call_s=5.0)) as store:
            store.found(self.keys, membership.fingerprint(settings, sites_digest=digest))
        for name in NODES:
            self.nodes[name].start()
        self.until(lambda: all(self.nodes[name].ready() for name in NODES), READY_S, "all nodes are ready")
        report = asyncio.run(seeding.seed_lines(settings, self.graph.seeds(), 5))
        assert report.accepted == len(self.graph.seeds()), report

    def until(self, condition: Callable[[], Found | None], within_s: float, what: str) -> Found:
        """Wait for a condition; its first true answer is returned."""
        deadline = time.monotonic() + within_s
        while not (found := condition()):
            self.look()
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}\n{self.told()}"
            time.sleep(LOOK_S)
        return found

    def told(self) -> str:
        """What a failure needs: how each node ended, and its last words."""
        logs = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join([*map(str, self.ends), *(f"--- {log.name}\n{log.read_text()[-1200:]}" for log in logs)])

    def look(self) -> None:
        """Note which nodes ended."""
        for node in (*self.nodes.values(), *self.twins):
            node.look()

    # -- what faults ask for

    def spare_names(self) -> tuple[str, ...]:
        return SPARES

    def start_twin(self, name: str) -> NodeHost:
        """A second process with the id of a node, on another machine."""
        twin = NodeHost(self, name, self.machines["twin"], out=self.folder / "out" / "twin")
        twin.start(ends=True)
        self.twins.append(twin)
        return twin

    def kill_lease(self, node: str) -> bool:
        """As an operator does it; False where etcd did not answer, or the node is no member."""
        line = [sys.executable, "-P", "-m", "coordinator.cli", "kill-lease", node, f"--rejoin={self.settings.rejoin_s}"]
        where = [f"--etcd={self.etcd.endpoints}", f"--redis={self.store.url}", f"--cluster={CLUSTER}"]
        done = subprocess.run(
            [*line, *where], env=nodes.packages(), capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        return done.returncode == 0

    def revoke(self, node: str) -> bool:
        """End the lease in etcd, and tell nobody when to come back."""
        with contextlib.closing(etcd.Etcd(self.etcd.endpoints)) as store:
            try:
                seen = store.look(self.keys).members.get(node)
                return seen is not None and store.revoke(seen.lease)
            except errors.StoreUnavailable:
                return False

    def cut(self, a: str, b: str, direction: Direction = "both") -> None:
        """Silence between two machines; `out` loses what `a` sends, `in` what it is sent."""
        self.machines[a].cut_from(self.machines[b], direction=direction)

    def mend(self, a: str, b: str) -> None:
        self.machines[a].mend_from(self.machines[b])

    # -- the end

    def drain(self) -> dict[str, int | None]:
        """SIGTERM to all that run; the exit status of each, None where it did not end."""
        asked = [node for node in self.nodes.values() if node.running]
        for node in asked:
            node.term()
        deadline = time.monotonic() + DRAIN_S
        return {node.name: node.wait(max(0.0, deadline - time.monotonic())) for node in asked}

    def dump_handoffs(self, path: Path) -> None:
        """The handoff log as `crawlring handoffs --json` prints it."""

        async def read(store: frontier.Frontier) -> bytes:
            return b"".join([records.encode_json(entry) + b"\n" async for entry in handoffs.read(store)])

        path.write_bytes(self.ask(read))

    def site_ends(self) -> dict[str, dict[str, Any]]:
        """Where each site's URLs are, by its record."""
        kept = ("pending", "later", "set_aside", "seen", "pages")

        async def read(store: frontier.Frontier) -> dict[str, dict[str, Any]]:
            looks = {site.name: await store.look(site.name) or {} for site in self.graph.sites}
            return {name: {key: look[key] for key in kept if key in look} for name, look in looks.items()}

        return self.ask(read)

    def ask(self, question: Callable[[frontier.Frontier], Coroutine[Any, Any, Found]]) -> Found:
        """Ask the store something, over a connection of its own."""

        async def asked() -> Found:
            store = await frontier.Frontier.open(self.store.url, CLUSTER, call_s=5.0)
            try:
                return await question(store)
            finally:
                await store.close()

        return asyncio.run(asked())

    def pids(self) -> dict[str, int]:
        """Whose memory is watched."""
        found = {name: node.pid for name, node in self.nodes.items() if node.running}
        servers = {name: server.pid for name, server in (*self.etcd.members.items(), *self.store.servers.items())}
        return found | servers | {"web": self.web.pid}

    def close(self) -> None:
        for node in (*self.nodes.values(), *self.twins):
            node.close()
        self.web.close()


def machine_names(store: StoreKind) -> Sequence[str]:
    """Every host of a run."""
    redis = ("redis",) if store == "single" else tuple(f"redis{i}" for i in range(1, 7))
    return ("etcd1", "etcd2", "etcd3", *redis, "web", *NODES, *SPARES, "twin")


@contextlib.contextmanager
def built(folder: Path, settings: Settings) -> Iterator[Arena]:
    """Hosts with their stores and the web up, and no node yet; nothing is left of them at the exit."""
    folder.mkdir(parents=True, exist_ok=True)
    names = machine_names(settings.store)
    with namespaces.machines(names) as hosts, contextlib.ExitStack() as stack:
        trio = stores.EtcdTrio([hosts[name] for name in names[:3]], folder / "etcd")
        stack.callback(trio.stop)
        trio.start()
        store: stores.Single | stores.Clustered
        if settings.store == "single":
            store = stores.Single(hosts["redis"], folder / "redis")
        else:
            store = stores.Clustered([hosts[f"redis{i}"] for i in range(1, 7)], folder / "redis")
        stack.callback(store.stop)
        store.start()
        graph = forest.grow(settings.sites, settings.pages, settings.seed)
        arena = Arena(folder, settings, hosts, graph, trio, store)
        stack.callback(arena.close)
        yield arena


def _get(host: str, port: int, path: str) -> bytes:
    with socket.create_connection((host, port), timeout=1) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
    return answer
