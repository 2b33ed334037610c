"""The cluster's stores on separate machines: an etcd of three, one Valkey, and (in redis_cluster.py) a Redis Cluster.

Each is a handful of verbs for whoever breaks things, by machine name; waiting has deadlines. What may be done to them
is decided elsewhere.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from coordinator import local
from tests.cluster import namespaces
from tests.torture import hosted
from tests.torture.redis_cluster import Clustered

__all__ = ["Clustered", "EtcdTrio", "Single"]

CLIENT, PEER, REDIS = 2379, 2380, 6379
HEALTHY_S = 20.0  # an election takes one to two seconds, a member that catches up a few
SERVING_S = 10.0
RESTORE_S = 30.0

Store = TypeVar("Store", "EtcdTrio", "Single", Clustered)


class EtcdTrio:
    """An etcd cluster, one member a machine. Nothing is synced to disk: its machines never lose power."""

    def __init__(self, machines: Sequence[namespaces.Machine], folder: Path, *, program: str | None = None) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self.folder = folder
        self.program = program or local.find_etcd()
        self._restores = 0
        self._compacted = 0
        self._options = ["--unsafe-no-fsync"] if _knows(self.program, "unsafe-no-fsync") else []
        self.members = {
            name: hosted.Hosted(machine, self._command(machine), folder=folder / name)
            for name, machine in self.machines.items()
        }

    @property
    def endpoints(self) -> str:
        return ",".join(f"{machine.address}:{CLIENT}" for machine in self.machines.values())

    def start(self) -> None:
        """Start all and wait until the three answer as one."""
        for member in self.members.values():
            member.start()
        assert self.healthy(hosted.START_S), {name: member.last_words() for name, member in self.members.items()}

    def stop(self) -> None:
        for member in self.members.values():
            member.kill()

    def pids(self) -> dict[str, int]:
        """Of those that run."""
        return {name: member.pid for name, member in self.members.items() if member.running}

    def kill(self, name: str) -> None:
        self.members[name].kill()

    def restart(self, name: str) -> None:
        """On the same data; it may not serve yet."""
        self.members[name].kill()
        self.members[name].start()

    def freeze(self, name: str) -> None:
        self.members[name].freeze()

    def thaw(self, name: str) -> None:
        self.members[name].thaw()

    def leader(self) -> str | None:
        """The machine whose member leads in the newest term anybody knows; None while there is none."""
        seen = {name: status for name in self.members if (status := self.status(name)) is not None}
        newest = max((_term(status) for status in seen.values()), default=0)
        for name, status in seen.items():
            if _term(status) == newest and status.get("leader") == status["header"]["member_id"]:
                return name
        return None

    def status(self, name: str) -> dict[str, Any] | None:
        """What a member says of itself (Maintenance.Status as JSON, numbers as strings); None where it is silent."""
        member = self.members[name]
        if not member.running or member.frozen:
            return None
        return self._posted(name, "maintenance/status", {})

    def revision(self) -> int:
        """The store's revision, by a linearizable read; 0 where no majority answers."""
        request = {"key": "AA==", "limit": "1", "count_only": True}
        for name in self.members:
            answer = self._posted(name, "kv/range", request)
            if answer is not None and "header" in answer:
                return int(answer["header"]["revision"])
        return 0

    def healthy(self, within_s: float = 0.0) -> bool:
        """Every member runs, answers a linearizable read, and follows one leader; waits that long for it."""
        return hosted.holds(self._is_healthy, within_s)

    def compact(self) -> int:
        """Forget all history before the newest revision, which is returned; 0 where no majority answers."""
        revision = self.revision()
        if revision and revision == self._compacted:
            return revision  # nothing was written since
        for name in self.members:
            if revision and self._posted(name, "kv/compaction", {"revision": str(revision), "physical": True}):
                self._compacted = revision
                return revision
        return 0

    # -- old copies

    def save(self, *names: str) -> None:
        """Keep a copy of these members' data (of all, without a name) as of one moment; each stands still meanwhile."""
        wanted = names or tuple(self.members)
        moving = [name for name in wanted if not self.members[name].frozen]
        for name in wanted:  # a hash puts on file first what the member keeps back for a tenth of a second
            self._posted(name, "maintenance/hash", {})
        try:
            for name in moving:
                self.members[name].freeze()
            for name in wanted:
                _copied(self._data(name), self._saved(name))
        finally:
            for name in moving:
                self.members[name].thaw()

    def roll_back(self, name: str, within_s: float = SERVING_S) -> bool:
        """Give a killed member its saved data and start it; whether the others took it back in time.

        A leader that remembers how far this member was would make it panic at once ("tocommit is out of range"), as
        etcd should. So the lead is moved to the third member first: a new leader asks anew how far everybody is.
        """
        self.members[name].kill()
        self._move_lead(away_from=name, within_s=within_s)
        _copied(self._saved(name), self._data(name))
        self.members[name].start()
        return hosted.holds(lambda: self._serves(name), within_s)

    def restore_all(self, *, same_cluster: bool = False) -> None:
        """Start the trio from its saved data: as a new cluster, as an operator restores a snapshot, or as the same one.

        The revision goes back either way. Needs the `etcdctl` beside etcd, except for the same cluster.
        """
        self.stop()
        source = self._saved(next(iter(self.members))) / "member" / "snap" / "db"
        self._restores += 1
        for name, member in self.members.items():
            if same_cluster:
                _copied(self._saved(name), self._data(name))
                continue
            shutil.rmtree(self._data(name), ignore_errors=True)
            self._restore(self.machines[name], source)
            member.command = self._command(self.machines[name])
        self.start()

    # -- inside

    def _command(self, machine: namespaces.Machine) -> list[str]:
        client, peer = f"http://{machine.address}:{CLIENT}", _peer(machine)
        return [
            self.program,
            *("--name", machine.name, "--data-dir", str(self._data(machine.name))),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", self._initial(), "--initial-cluster-token", f"trio-{self._restores}"),
            *("--heartbeat-interval", "100", "--election-timeout", "1000"),
            *("--logger", "zap", "--log-level", "warn"),
            *self._options,
        ]

    def _initial(self) -> str:
        return ",".join(f"{name}={_peer(machine)}" for name, machine in self.machines.items())

    def _data(self, name: str) -> Path:
        return self.folder / name / "data"

    def _saved(self, name: str) -> Path:
        return self.folder / name / "saved"

    def _restore(self, machine: namespaces.Machine, source: Path) -> None:
        program = shutil.which("etcdctl", path=str(Path(self.program).parent)) or shutil.which("etcdctl")
        assert program, "a restore as a new cluster needs etcdctl"
        command = [
            *(program, "snapshot", "restore", str(source), "--skip-hash-check"),  # a copied file carries no hash
            *("--name", machine.name, "--data-dir", str(self._data(machine.name))),
            *("--initial-cluster", self._initial(), "--initial-cluster-token", f"trio-{self._restores}"),
            *("--initial-advertise-peer-urls", _peer(machine)),
        ]
        environ = {**os.environ, "ETCDCTL_API": "3"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESTORE_S, check=False, env=environ)
        assert done.returncode == 0, done.stderr

    def _move_lead(self, *, away_from: str, within_s: float) -> None:
        """Make another of the remaining members lead; nothing happens where no lead is to be had."""
        if not hosted.holds(lambda: self.leader() not in (None, away_from), within_s):
            return
        leader = self.leader()
        others = [name for name in self.members if name not in (leader, away_from)]
        if leader is None or (status := self.status(others[0])) is None:
            return
        self._posted(leader, "maintenance/transfer-leadership", {"targetID": status["header"]["member_id"]})
        hosted.holds(lambda: self.leader() == others[0], within_s)

    def _is_healthy(self) -> bool:
        if not all(member.running and not member.frozen for member in self.members.values()):
            return False
        return self.leader() is not None and all(self._serves(name) for name in self.members)

    def _serves(self, name: str) -> bool:
        answer = self._posted(name, "kv/range", {"key": "AA==", "limit": "1", "count_only": True})
        return answer is not None and "header" in answer

    def _posted(self, name: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        return hosted.posted(f"{self.machines[name].address}:{CLIENT}", f"/v3/{path}", body)


class Single:
    """One Valkey or Redis whose append-only file is synced every second; later `options` win."""

    def __init__(
        self,
        machine: namespaces.Machine,
        folder: Path,
        *,
        program: str | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.machine = machine
        self.machines: Mapping[str, namespaces.Machine] = {machine.name: machine}
        command = [
            program or local.find_valkey(),
            *("--port", str(REDIS), "--bind", machine.address, local.LOOPBACK, "--protected-mode", "no"),
            *("--dir", str(folder), "--daemonize", "no", "--loglevel", "warning", "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "everysec"),
            *options,
        ]
        self.server = hosted.Hosted(machine, command, folder=folder)
        self.servers = {machine.name: self.server}
        self.servers = {machine.name: self.server}

    @property
    def url(self) -> str:
        return f"redis://{self.machine.address}:{REDIS}/0"

    def start(self) -> None:
        """Start it and wait until it has loaded its file and answers."""
        self.server.start()
        assert self.healthy(hosted.START_S), self.server.last_words()

    def stop(self) -> None:
        self.server.stop()

    def pids(self) -> dict[str, int]:
        return {self.machine.name: self.server.pid} if self.server.running else {}

    def kill(self) -> None:
        self.server.kill()

    def restart(self) -> None:
        """On the same data."""
        self.server.kill()
        self.start()

    def freeze(self) -> None:
        self.server.freeze()

    def thaw(self) -> None:
        self.server.thaw()

    def healthy(self, within_s: float = 0.0) -> bool:
        """It answers a PING; waits that long for it."""
        return hosted.holds(self._answers, within_s)

    def _answers(self) -> bool:
        if not self.server.running or self.server.frozen:
            return False
        try:
            with socket.create_connection((self.machine.address, REDIS), timeout=hosted.ANSWER_S) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(64).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def running(store: Store) -> Iterator[Store]:
    """Started at the entry, gone at the exit."""
    try:
        store.start()
        yield store
    finally:
        store.stop()


def _peer(machine: namespaces.Machine) -> str:
    return f"http://{machine.address}:{PEER}"


def _term(status: Mapping[str, Any]) -> int:
    return int(status["header"].get("raft_term", 0))


def _knows(program: str, option: str) -> bool:
    done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=10, check=False)
    return option in done.stdout + done.stderr


def _copied(source: Path, target: Path) -> None:
    """A copy in the target's place; what a log has set aside on disk ahead of need takes no room in it."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True, timeout=RESTORE_S)
