"""Server processes inside machines of their own: started, killed, frozen and started again on the same data."""

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coordinator import local
from tests.cluster import namespaces

START_S = 30.0
STOPPED_S = 5.0  # until every thread of a stopped process stands still
POLL_S = 0.02
ANSWER_S = 1.0


class Hosted:
    """One server in one machine.

    The process ends with the thread that started it, as every child of coordinator/local.py: start it from a thread
    that lasts.
    """

    def __init__(self, machine: namespaces.Machine, command: Sequence[str], *, folder: Path) -> None:
        self.machine = machine
        self.command = list(command)
        self.folder = folder
        self.starts = 0
        self._child: local.Child | None = None

    @property
    def pid(self) -> int:
        """Of the last process; 0 before the first start."""
        return self._child.pid if self._child else 0

    @property
    def running(self) -> bool:
        """Frozen counts as running."""
        return self._child is not None and self._child.poll() is None

    @property
    def frozen(self) -> bool:
        return self.running and "T" in _states(self.pid)

    def start(self) -> None:
        """Start it; nothing happens if it runs. It may not answer yet."""
        if not self.running:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._child = local.Child([*self.machine.prefix, *self.command], log=self.folder / "log")
            self.starts += 1

    def kill(self) -> None:
        """SIGKILL; harmless if it does not run."""
        if self._child:
            self._child.kill()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after a while."""
        if self._child:
            self._child.stop()

    def freeze(self) -> None:
        """SIGSTOP; at the return every thread of it stands still."""
        if self._child and self.running:
            self._child.signal(signal.SIGSTOP)
            until(lambda: not self.running or set(_states(self.pid)) <= {"T"}, STOPPED_S, f"{self.machine.name} stops")

    def thaw(self) -> None:
        """SIGCONT; harmless if it is not frozen."""
        if self._child:
            self._child.signal(signal.SIGCONT)

    def last_words(self) -> str:
        return self._child.last_words() if self._child else ""


def until(true: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait for a condition; AssertionError says what did not come."""
    assert holds(true, within_s), f"not within {within_s:g} s: {what}"


def holds(true: Callable[[], bool], within_s: float) -> bool:
    """Whether the condition comes true in time; asked once at least."""
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def posted(address: str, path: str, body: dict[str, Any], *, timeout_s: float = ANSWER_S) -> dict[str, Any] | None:
    """The JSON answer to a POST; None where nothing or an error came."""
    request = urllib.request.Request(
        f"http://{address}{path}", data=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    try:
        with _opener.open(request, timeout=timeout_s) as answer:
            found: dict[str, Any] = json.loads(answer.read().splitlines()[0])
            return found
    except (OSError, urllib.error.URLError, ValueError, IndexError):
        return None


def _states(pid: int) -> list[str]:
    """The state letter of every thread."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found.append((task / "stat").read_text().rpartition(")")[2].split()[0])
        except OSError:  # it ended while we looked
            continue
    return found


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy of the environment
