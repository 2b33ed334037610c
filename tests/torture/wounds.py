"""What a fault needs of the hosts it strikes, and what it leaves behind: a wound that heals itself.

The protocols say what the arena must offer; nothing here knows a process, an address or a namespace.
"""

import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from shared import errors
from tests.torture import rules

Kind = Literal["crash", "killed_lease", "planned", "silent", "etcd", "store", "clock", "slow", "none"]
Direction = Literal["both", "out", "in"]
StoreKind = Literal["single", "cluster"]
Touch = Literal["nodes", "all-nodes", "spares", "etcd", "store", "web"]

ANY_STORE: frozenset[StoreKind] = frozenset(("single", "cluster"))
EXIT_S = 40.0  # a drain may take its membership.drain_s; whoever takes longer is killed
WORK_S = 60.0  # it may stand in a restart of a whole etcd
LOOK_S = 0.05
TROUBLE_MAX = 300  # characters
ETCD = ("etcd1", "etcd2", "etcd3")


class Unable(errors.CrawlError):
    """This fault cannot strike now: no node is free, or none has what the fault needs."""


class NodeHost(Protocol):
    """One node's machine, its process and its way to etcd and the store."""

    @property
    def name(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def fake_clock(self) -> bool:
        """May its wall clock be stepped?"""
        ...

    @property
    def relay(self) -> "Relay | None": ...

    def start(self) -> None: ...
    def ready(self) -> bool:
        """Does it say that it is ready, and so handles signals?"""
        ...

    def kill(self) -> None: ...
    def term(self) -> None:
        """SIGTERM, without waiting."""
        ...

    def stop(self) -> None:
        """SIGSTOP; harmless where nothing runs, as is `cont`."""
        ...

    def cont(self) -> None: ...
    def step_clock(self, seconds: float) -> None:
        """Its wall clock is off by so much from now on; 0 is the truth."""
        ...


class Relay(Protocol):
    """Rules of one relay, kept apart by who set them."""

    def set(self, by: str, *wanted: rules.Rule) -> None: ...
    def clear(self, by: str | None = None) -> None: ...


class Twin(Protocol):
    """A second process under one id."""

    def kill(self) -> None: ...


class EtcdTrio(Protocol):
    """Three etcd members, by the names of ETCD."""

    def start(self) -> None:
        """Start whoever does not run, and wait until the three answer as one."""
        ...

    def stop(self) -> None: ...
    def leader(self) -> str | None: ...
    def kill(self, name: str) -> None: ...
    def restart(self, name: str) -> None:
        """On its data; it may not serve yet."""
        ...

    def freeze(self, name: str) -> None: ...
    def thaw(self, name: str) -> None: ...
    def compact(self) -> int:
        """The revision up to which; 0 where it could not."""
        ...

    def save(self, *names: str) -> None:
        """Keep a copy of their data, or of everybody's."""
        ...

    def roll_back(self, name: str) -> bool:
        """Kill it and start it on the copy; does it serve?"""
        ...

    def restore_all(self, *, same_cluster: bool = False) -> None:
        """Start all anew from the copies, as another cluster or as the same."""
        ...


class Single(Protocol):
    """One Valkey with its append-only file."""

    def kill(self) -> None: ...
    def restart(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class Clustered(Protocol):
    """Three masters and three replicas by machine name."""

    def masters(self) -> dict[str, str | None]:
        """The replica of each master, where it has one."""
        ...

    def kill(self, name: str) -> None: ...
    def restart(self, name: str) -> None: ...
    def freeze(self, name: str) -> None: ...
    def thaw(self, name: str) -> None: ...
    def lag(self, replica: str) -> None:
        """From now on the replica hears nothing of its master."""
        ...

    def catch_up(self, replica: str) -> None: ...
    def fail_over(self, master: str) -> str:
        """Kill the master; its replica, lagging or not, has its place at the return."""
        ...

    def healthy(self, within_s: float = 0.0) -> bool: ...


class Web(Protocol):
    def slow(self, on: bool) -> None: ...


class Settings(Protocol):
    @property
    def store(self) -> StoreKind: ...
    @property
    def ttl_s(self) -> float: ...
    @property
    def view_lease_s(self) -> float: ...
    @property
    def wire_s(self) -> float: ...
    @property
    def delay_s(self) -> float: ...


class Arena(Protocol):
    """The whole battlefield; a machine is called as its node, or by one of ETCD, or "web", "redis", "redis1"..."""

    @property
    def nodes(self) -> Mapping[str, NodeHost]: ...
    @property
    def busy(self) -> set[str]:
        """Nodes that some wound still holds; empty at first, and kept by the faults."""
        ...

    @property
    def etcd(self) -> EtcdTrio: ...
    @property
    def store(self) -> Any:
        """Single or Clustered, as the settings say."""
        ...

    @property
    def web(self) -> Web: ...
    @property
    def settings(self) -> Settings: ...
    def spare_names(self) -> Iterable[str]: ...
    def start_twin(self, name: str) -> Twin: ...
    def kill_lease(self, node: str) -> bool: ...
    def revoke(self, node: str) -> bool: ...
    def cut(self, a: str, b: str, direction: Direction = "both") -> None:
        """Drop what goes between two machines; "out" is what `a` sends."""
        ...

    def mend(self, a: str, b: str) -> None: ...


class Undo:
    """What heals a wound, last step first. A step that fails is tried again by the next `heal`; the others are done."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []
        self.trouble: list[str] = []
        """What went wrong with work that goes on beside."""

    def by(self, step: Callable[..., object], *arguments: object) -> None:
        self._steps.append(lambda: step(*arguments))

    def heal(self) -> None:
        """Harmless when all is healed."""
        failed: list[tuple[Callable[[], object], BaseException]] = []
        while self._steps:
            step = self._steps.pop()
            try:
                step()
            except (errors.CrawlError, OSError, AssertionError, RuntimeError, subprocess.SubprocessError) as error:
                failed.append((step, error))
        self._steps.extend(step for step, _ in reversed(failed))
        if failed:
            raise failed[0][1]


@dataclass(frozen=True, slots=True)
class Told:
    """What an act says of itself; `lasts_s` where the fault keeps its own time."""

    victims: tuple[str, ...]
    detail: str
    lasts_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wound:
    """A fault that was inflicted. `heal` may take seconds and may be called again; all processes run afterwards."""

    victims: tuple[str, ...]
    detail: str
    heal: Callable[[], None]
    lasts_s: float | None
    """How long this one lasts; None: as long as was planned."""
    trouble: Sequence[str] = ()
    """Grows while the work beside goes wrong."""


Act = Callable[[Arena, random.Random, Undo], Told]


@dataclass(frozen=True, slots=True)
class Fault:
    """One named fault; `act` puts on the stack, step by step, how to undo what it has done."""

    name: str
    kind: Kind
    says: str
    seconds: tuple[float, float]
    """Shortest and longest useful time until the heal."""
    act: Act
    touches: frozenset[Touch]
    """What no other fault may touch meanwhile; nodes excepted, of which each fault takes its own."""
    needs: frozenset[StoreKind] = ANY_STORE
    """The kinds of store on which it can strike."""

    def inflict(self, arena: Arena, rng: random.Random) -> Wound:
        """Strike; where it fails half way, what was done is undone. Unable says that nothing was done."""
        undo = Undo()
        try:
            told = self.act(arena, rng, undo)
        except BaseException:
            undo.heal()
            raise
        return Wound(told.victims, told.detail, undo.heal, told.lasts_s, undo.trouble)


def take(arena: Arena, undo: Undo, rng: random.Random, *, able: str = "") -> NodeHost:
    """A running node that no other wound holds, held by this one until it has healed and runs again."""
    spares = set(arena.spare_names())
    free = [
        node
        for name, node in sorted(arena.nodes.items())
        if name not in arena.busy
        and node.running
        and (able != "relay" or node.relay is not None)
        and (able != "fake_clock" or node.fake_clock)
    ]
    if not free:
        raise Unable(f"no node is free{f' and has a {able}' if able else ''}")
    node = rng.choice([node for node in free if node.name not in spares] or free)
    hold(arena, undo, node)
    return node


def take_all(arena: Arena, undo: Undo) -> list[NodeHost]:
    """Every running node that no other wound holds."""
    found = [node for name, node in sorted(arena.nodes.items()) if name not in arena.busy and node.running]
    if not found:
        raise Unable("no node is free")
    for node in found:
        hold(arena, undo, node)
    return found


def hold(arena: Arena, undo: Undo, node: NodeHost) -> None:
    """No other fault takes this node until the stack is undone, and then it runs."""
    arena.busy.add(node.name)
    undo.by(arena.busy.discard, node.name)
    undo.by(run_again, node)


def run_again(node: NodeHost) -> None:
    """Start it unless it runs; whoever is still draining is waited for."""
    if not node.running:
        node.start()


def store_machines(arena: Arena) -> tuple[str, ...]:
    return ("redis",) if arena.settings.store == "single" else tuple(f"redis{i}" for i in range(1, 7))


def gone(node: NodeHost) -> None:
    """Wait for the end of a node that was told to end, once: a second SIGTERM would end it at once."""
    deadline = time.monotonic() + EXIT_S
    node.cont()
    while node.running and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    if node.running:
        node.kill()


def meanwhile(undo: Undo, work: Callable[[threading.Event], None]) -> None:
    """Run `work` beside the runner until the heal, which sets the event and waits for it; its error is the heal's.

    It is booked as the wound's trouble too: a second heal works, and the fault was not what its name says.
    """
    over = threading.Event()

    def booked() -> None:
        try:
            work(over)
        except BaseException as error:
            undo.trouble.append(f"{type(error).__name__}: {error}"[:TROUBLE_MAX])
            raise

    waiting = [_beside.submit(booked)]

    def end() -> None:
        over.set()
        wait(waiting, WORK_S)
        if waiting and waiting[0].done():
            waiting.pop().result()  # its error is told once: the next heal has nothing to wait for
        assert not waiting, f"what goes on beside does not end within {WORK_S:g} s"

    undo.by(end)


# A child process ends with the thread that started it, and a pool's threads last.
_beside = ThreadPoolExecutor(max_workers=16, thread_name_prefix="nemesis")
