"""A Redis Cluster of three masters with a replica each, one server a machine.

It is put together by commands over sockets. A replica never refuses a fail-over for being behind, so that a lagging one
takes over with what it has: that is the fault to be shown.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from coordinator import local
from tests import servers
from tests.cluster import namespaces
from tests.torture import hosted

REDIS = 6379
SLOTS = 16_384
TIMEOUT_MS = 2_000  # silent for so long is "fail?"; a majority of masters that agree makes it "fail"
JOINED_S = 20.0
HEALTHY_S = 30.0
PROMOTED_S = 30.0  # the time-out, then about a second of votes; thrice that on a loaded machine


class Clustered:
    """Three masters, then three replicas in the same order, by machine name; an append-only file each."""

    def __init__(
        self,
        machines: Sequence[namespaces.Machine],
        folder: Path,
        *,
        program: str | None = None,
        options: Sequence[str] = (),
    ) -> None:
        assert len(machines) == 6, "three masters and three replicas"
        self.machines = {machine.name: machine for machine in machines}
        self.program = program or (servers.REDIS7 if os.access(servers.REDIS7, os.X_OK) else local.find_valkey())
        self.servers = {
            name: hosted.Hosted(machine, self._command(machine, folder / name, options), folder=folder / name)
            for name, machine in self.machines.items()
        }
        self._made = False

    @property
    def url(self) -> str:
        """All six: which ones are masters changes."""
        return "redis-cluster://" + ",".join(f"{machine.address}:{REDIS}" for machine in self.machines.values())

    def start(self) -> None:
        """Start all, make them one cluster the first time, and wait until it is healthy."""
        for server in self.servers.values():
            server.start()
        hosted.until(lambda: all(self.asked(name, "PING") for name in self.servers), hosted.START_S, "all answer")
        if not self._made:
            self._join()
            self._made = True
        assert self.healthy(HEALTHY_S), self.trouble()

    def stop(self) -> None:
        """At once: a master that is asked to end waits for its replicas."""
        for server in self.servers.values():
            server.kill()

    def pids(self) -> dict[str, int]:
        """Of those that run."""
        return {name: server.pid for name, server in self.servers.items() if server.running}

    def kill(self, name: str) -> None:
        self.servers[name].kill()

    def restart(self, name: str) -> None:
        """On the same data; a master that lost its slots meanwhile becomes a replica of who has them."""
        self.servers[name].kill()
        self.servers[name].start()

    def freeze(self, name: str) -> None:
        self.servers[name].freeze()

    def thaw(self, name: str) -> None:
        self.servers[name].thaw()

    def masters(self) -> dict[str, str | None]:
        """Who holds slots, each with a replica that the masters have not given up; of the newest configuration."""
        rows = self._rows()
        names = {row[0]: name for row in rows if (name := self._named(row[1])) is not None}
        found: dict[str, str | None] = {
            names[row[0]]: None
            for row in rows
            if "master" in row[2].split(",") and len(row) > 8 and row[0] in names  # the ninth field on: its slots
        }
        for row in rows:
            flags, of = row[2].split(","), names.get(row[3])
            if "slave" in flags and not {"fail", "noaddr"} & set(flags) and of in found and row[0] in names:
                found[of] = names[row[0]]
        return found

    def lag(self, replica: str) -> None:
        """Nothing of its master's reaches this replica from now on, and neither notices soon."""
        self.machines[replica].cut_from(self.machines[self._master_of(replica)])

    def catch_up(self, replica: str) -> None:
        """The end of `lag`."""
        for machine in self.machines.values():
            if machine.name != replica:
                self.machines[replica].mend_from(machine)

    def fail_over(self, master: str) -> str:
        """Kill a master and wait until its replica has its slots; that replica's name."""
        replica = self.masters()[master]
        assert replica is not None, f"{master} has no replica"
        self.servers[master].kill()
        hosted.until(lambda: replica in self.masters(), PROMOTED_S, f"{replica} is promoted")
        self.catch_up(replica)
        return replica

    def healthy(self, within_s: float = 0.0) -> bool:
        """All six see the whole cluster, and each master has a replica in step; waits that long for it."""
        return hosted.holds(lambda: not self.trouble(), within_s)

    def trouble(self) -> str:
        """What is amiss; empty when nothing is."""
        for name, server in self.servers.items():
            if not server.running or server.frozen:
                return f"{name} does not run: {server.last_words()}"
            if "cluster_state:ok" not in str(self.asked(name, "CLUSTER", "INFO")):
                return f"{name} sees a cluster that is not whole"
        pairs = self.masters()
        if len(pairs) != 3 or None in pairs.values():
            return f"masters and their replicas: {pairs}"
        for replica in pairs.values():
            if replica is None or "master_link_status:up" not in str(self.asked(replica, "INFO", "replication")):
                return f"{replica} is not in step with its master"
        return ""

    def asked(self, name: str, *command: str) -> Any:
        """The answer as text; None where there is none, without waiting for a frozen one."""
        server = self.servers[name]
        if not server.running or server.frozen:
            return None
        with (
            contextlib.suppress(redis.ConnectionError, redis.TimeoutError),
            redis.Redis(
                host=self.machines[name].address,
                port=REDIS,
                socket_timeout=hosted.ANSWER_S,
                socket_connect_timeout=hosted.ANSWER_S,
                decode_responses=True,
                retry=Retry(NoBackoff(), 0),
            ) as client,
        ):
            client.response_callbacks.clear()  # text as it came
            return client.execute_command(*command)
        return None

    # -- inside

    def _command(self, machine: namespaces.Machine, folder: Path, options: Sequence[str]) -> list[str]:
        return [
            self.program,
            *("--port", str(REDIS), "--bind", machine.address, local.LOOPBACK, "--protected-mode", "no"),
            *("--dir", str(folder), "--daemonize", "no", "--loglevel", "notice", "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "everysec"),
            *("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"),
            *("--cluster-node-timeout", str(TIMEOUT_MS), "--cluster-announce-ip", machine.address),
            *("--cluster-replica-validity-factor", "0"),  # a replica that is far behind stands for election too
            *("--cluster-allow-replica-migration", "no"),  # or a pair would change under whoever chose it
            *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"),
            *options,
        ]

    def _join(self) -> None:
        """Slots to the first three, everybody known to everybody, then the replicas to their masters."""
        names = list(self.servers)
        first, bounds = names[0], [SLOTS * i // 3 for i in range(4)]
        for epoch, name in enumerate(names, 1):
            self._must(name, "CLUSTER", "SET-CONFIG-EPOCH", str(epoch))
        for name, low, high in zip(names[:3], bounds, bounds[1:], strict=False):
            self._must(name, "CLUSTER", "ADDSLOTSRANGE", str(low), str(high - 1))
        for name in names[1:]:
            self._must(first, "CLUSTER", "MEET", self.machines[name].address, str(REDIS))
        hosted.until(lambda: all(self._knows_all(name) for name in names), JOINED_S, "all six know each other")
        for master, replica in zip(names[:3], names[3:], strict=True):
            identity = str(self._must(master, "CLUSTER", "MYID"))
            self._must(replica, "CLUSTER", "REPLICATE", identity)

    def _knows_all(self, name: str) -> bool:
        rows = _rows_of(self.asked(name, "CLUSTER", "NODES"))
        return len(rows) == 6 and not any("handshake" in row[2] for row in rows)

    def _rows(self) -> list[list[str]]:
        """CLUSTER NODES of the server that knows the newest configuration, one list a line."""
        seen = [rows for name in self.servers if (rows := _rows_of(self.asked(name, "CLUSTER", "NODES")))]
        return max(seen, key=lambda rows: sorted((int(row[6]) for row in rows), reverse=True), default=[])

    def _master_of(self, replica: str) -> str:
        for master, found in self.masters().items():
            if found == replica:
                return master
        raise AssertionError(f"{replica} is no replica: {self.masters()}")

    def _named(self, address: str) -> str | None:
        host = address.partition(":")[0]
        return next((name for name, machine in self.machines.items() if machine.address == host), None)

    def _must(self, name: str, *command: str) -> Any:
        answer = self.asked(name, *command)
        assert answer is not None, f"{name} does not answer {command}"
        return answer


def _rows_of(answer: Any) -> list[list[str]]:
    return [line.split() for line in str(answer or "").splitlines() if len(line.split()) >= 8]
