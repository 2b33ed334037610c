"""The node processes of one machine, for `up` and `demo`: start them, see which ended, drain or kill them.

It knows no store: a node is told where its cluster is and looks after itself.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coordinator import local

GONE_S = 5.0  # from SIGKILL to the end of the process


@dataclass(frozen=True, slots=True)
class Place:
    """What all nodes of a crew are told."""

    etcd: str
    redis: str
    cluster: str
    out: Path
    logs: Path
    arguments: Sequence[str] = ()
    """More options of `crawlring node`."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """More variables, over this process's own."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A node process that is no more."""

    node: str
    pid: int
    status: int

    @property
    def how(self) -> str:
        if self.status < 0:
            return f"was killed by {signal.Signals(-self.status).name}"
        return f"ended with status {self.status}"


class Crew:
    """The nodes started here; one that ends is told once, and never started again."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._children: dict[str, local.Child] = {}
        self._told: set[str] = set()

    def start(self, node: str, *, place: Place | None = None) -> int:
        """Start a node, at a place of its own if one is given; returns its process id."""
        told = place or self.place
        self.place.out.mkdir(parents=True, exist_ok=True)
        self.place.logs.mkdir(parents=True, exist_ok=True)
        child = local.Child(
            node_command(told, node),
            log=self.place.logs / f"{node}.log",
            environ=node_environ(told),
        )
        self._children[node] = child
        self._told.discard(node)
        return child.pid

    def alive(self) -> list[str]:
        """Names of the nodes that run."""
        return [node for node, child in self._children.items() if child.poll() is None]

    def ended(self) -> list[Ended]:
        """The nodes that ended since the last call."""
        found = [
            Ended(node, child.pid, status)
            for node, child in self._children.items()
            if node not in self._told and (status := child.poll()) is not None
        ]
        self._told.update(end.node for end in found)
        return found

    def log(self, node: str) -> Path:
        return self.place.logs / f"{node}.log"

    def pid(self, node: str) -> int:
        return self._children[node].pid

    def kill_one(self, node: str) -> None:
        """SIGKILL to one, as a crash."""
        self._children[node].kill()

    def pause(self, node: str) -> None:
        """SIGSTOP: it lives, holds its connections, and does nothing."""
        self._children[node].signal(signal.SIGSTOP)

    def resume(self, node: str) -> None:
        """SIGCONT."""
        self._children[node].signal(signal.SIGCONT)

    def drain(self) -> None:
        """SIGTERM to all: each hands its sites on and ends by itself."""
        for child in self._children.values():
            child.signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to all; they are gone at the return."""
        for child in self._children.values():
            child.signal(signal.SIGKILL)
        deadline = time.monotonic() + GONE_S
        for child in self._children.values():
            child.wait(max(0.0, deadline - time.monotonic()))


def node_command(place: Place, node: str) -> list[str]:
    """`crawlring node` of this installation; -P keeps a folder `node` in the working directory out of it."""
    return [
        *(sys.executable, "-P", "-m", "coordinator.cli", "node"),
        *place.arguments,
        *(f"--id={node}", f"--etcd={place.etcd}", f"--cluster={place.cluster}", f"--out={place.out}"),
    ]


def node_environ(place: Place) -> dict[str, str]:
    """The variables of this process, with the place's own on top.

    The store's URL is among them and on no command line: it may hold a password, and everybody may read a command line.
    """
    return packages() | {"CRAWLRING_REDIS": place.redis} | dict(place.environ)


def packages() -> dict[str, str]:
    """This process's variables, with the folder of our packages first on Python's path."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
