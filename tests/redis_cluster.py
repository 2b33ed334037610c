"""A real Redis Cluster on loopback: three masters and a replica of each."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import redis.asyncio

from coordinator import local
from tests import servers
from tests.stores import shapes

MASTERS = 3
SLOTS = 16_384
NODE_TIMEOUT_MS = 1_000
OPTIONS = (
    *("--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
    *("--cluster-replica-validity-factor", "0"),  # a replica that was cut off may become master all the same
    *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"),
)
FORMS_S = 20.0


@dataclasses.dataclass
class Cluster:
    """Six servers; who is master is asked, since it changes."""

    servers: list[local.Server]
    connect: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What redis-py needs besides host and port."""
    tls_ports: list[int] = dataclasses.field(default_factory=list)

    @property
    def url(self) -> str:
        """With two of its servers: the others are found."""
        return f"redis-cluster://{self.servers[0].address},{self.servers[4].address}"

    async def ask(self, server: local.Server, *words: Any) -> Any:
        client: Any = redis.asyncio.Redis(host=local.LOOPBACK, port=server.port, protocol=2, **self.connect)
        async with client as raw:
            return await raw.execute_command(*words)

    async def rows(self, server: local.Server) -> list[list[str]]:
        """CLUSTER NODES as that server sees it, split at blanks."""
        answer = await self.ask(server, "CLUSTER", "NODES")
        return [line.split(" ") for line in answer.decode().splitlines()]

    async def master_of(self, key: str) -> local.Server:
        """Who has the key's slot, as the servers that run agree."""
        running = [one for one in self.servers if one.exit_status is None]
        slot = int(await self.ask(running[0], "CLUSTER", "KEYSLOT", key))
        for first, last, master, *_ in await self.ask(running[0], "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return self._at(int(master[1]))
        raise AssertionError(f"no server has slot {slot}")

    async def replica_of(self, master: local.Server) -> local.Server:
        for _, _, known, *replicas in await self.ask(master, "CLUSTER", "SLOTS"):
            if known[1] == master.port:
                return self._at(int(replicas[0][1]))
        raise AssertionError("it has no slots")

    def _at(self, port: int) -> local.Server:
        return next(one for one in self.servers if one.port == port)

    async def form(self) -> None:
        """Slots to the first three, a replica to each, and wait until all agree."""
        names = [(await self.ask(one, "CLUSTER", "MYID")).decode() for one in self.servers]
        for number, server in enumerate(self.servers[:MASTERS]):
            first, after = number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS
            await self.ask(server, "CLUSTER", "ADDSLOTSRANGE", first, after - 1)
            await self.ask(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.servers[1:]:
            port, bus = server.port, await self._bus(server)
            await self.ask(self.servers[0], "CLUSTER", "MEET", local.LOOPBACK, port, bus)
        await shapes.until(self._all_met, within_s=FORMS_S)
        for number, server in enumerate(self.servers[MASTERS:]):
            await self.ask(server, "CLUSTER", "REPLICATE", names[number])
        await self.settle()

    async def settle(self, *, within_s: float = FORMS_S) -> None:
        """Wait until each of three masters has a replica in step, and all servers see the same."""

        async def whole() -> bool:
            with contextlib.suppress(redis.exceptions.RedisError):
                return all([await self._sees_all(one) for one in self.servers])
            return False

        await shapes.until(whole, within_s=within_s)

    async def _all_met(self) -> bool:
        for one in self.servers:
            rows = await self.rows(one)
            if len(rows) != len(self.servers) or any("handshake" in row[2] for row in rows):
                return False
        return True

    async def _sees_all(self, server: local.Server) -> bool:
        if b"cluster_state:ok" not in await self.ask(server, "CLUSTER", "INFO"):
            return False
        slots = await self.ask(server, "CLUSTER", "SLOTS")
        if len({row[2][1] for row in slots}) != MASTERS or any(len(row) < 4 for row in slots):
            return False
        role = await self.ask(server, "ROLE")
        if role[0] in {b"slave", "slave"}:
            return role[3] in {b"connected", "connected"}
        return len(role[2]) == 1

    async def _bus(self, server: local.Server) -> int:
        row = next(row for row in await self.rows(server) if "myself" in row[2])
        return int(row[1].split("@")[1].split(",")[0])


@contextlib.contextmanager
def running(
    folder: Path,
    *,
    store: Callable[..., local.Server] = servers.redis7,
    options: Sequence[str] = (),
    own: Callable[[], Sequence[str]] = tuple,
) -> Iterator[Cluster]:
    """A cluster that works; its servers are gone at the exit. `own`: more options, asked for once a server."""
    made = [
        store(folder / f"redis{number}", options=(*OPTIONS, "--cluster-port", str(local.free_port()), *options, *own()))
        for number in range(2 * MASTERS)
    ]
    try:
        for server in made:
            server.start()
        cluster = Cluster(made)
        asyncio.run(cluster.form())
        yield cluster
    finally:
        for server in made:
            server.kill()
