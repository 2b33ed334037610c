"""Each fault does something and its heal undoes all of it: judged on hosts that only keep the books of their state."""

import dataclasses
import functools
import random
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared import errors
from tests.torture import nemesis, node_faults, rules, wounds

QUICK_S = 0.4  # of a fault that keeps its own time more would only be waiting


@dataclass
class Node:
    name: str
    arena: "Arena"
    fake_clock: bool = True
    running: bool = True
    frozen: bool = False
    offset_s: float = 0.0
    relay: "Switch | None" = None

    def start(self) -> None:
        if not self.running:
            self.arena.did.append(f"start {self.name}")
            self.running, self.frozen = True, False

    def ready(self) -> bool:
        return self.running and not self.frozen

    def kill(self) -> None:
        self.arena.did.append(f"kill {self.name}")
        self.running = self.frozen = False

    def term(self) -> None:
        assert self.running, "told to end a second time, it would not drain"
        self.kill()

    def stop(self) -> None:
        self.arena.did.append(f"stop {self.name}")
        self.frozen = self.running

    def cont(self) -> None:
        self.frozen = False

    def step_clock(self, seconds: float) -> None:
        self.arena.did.append(f"clock {self.name}")
        self.offset_s = seconds


@dataclass
class Switch:
    arena: "Arena"
    held: dict[str, tuple[rules.Rule, ...]] = field(default_factory=dict)

    def set(self, by: str, *wanted: rules.Rule) -> None:
        self.arena.did.append(f"rules {by}")
        self.held[by] = wanted

    def clear(self, by: str | None = None) -> None:
        assert by is not None, "another fault's rules would go too"
        self.held.pop(by, None)


@dataclass
class Servers:
    """Machines with servers: etcd, one Valkey (named ""), or a Redis Cluster."""

    arena: "Arena"
    states: dict[str, str]
    lagging: set[str] = field(default_factory=set)
    away: bool = False

    def start(self) -> None:
        for name, state in self.states.items():
            assert state != "frozen", f"{name} stays frozen"
            self.states[name] = "runs"

    def kill(self, name: str = "") -> None:
        self._set(name, "dead")

    def restart(self, name: str = "") -> None:
        if self.away:
            raise errors.StoreUnavailable("not yet")
        self._set(name, "runs")

    def freeze(self, name: str = "") -> None:
        if self.states[name] == "runs":
            self._set(name, "frozen")

    def thaw(self, name: str = "") -> None:
        if self.states[name] == "frozen":
            self._set(name, "runs")

    def stop(self) -> None:
        for name in self.states:
            self._set(name, "dead")

    def leader(self) -> str | None:
        return next((name for name, state in self.states.items() if state == "runs"), None)

    def save(self, *names: str) -> None: ...

    def compact(self) -> int:
        self.arena.did.append("compact")
        return 7

    def roll_back(self, name: str) -> bool:
        self._set(name, "runs")
        return True

    def restore_all(self, *, same_cluster: bool = False) -> None:
        self.arena.did.append(f"restore {same_cluster}")
        self.start()

    def masters(self) -> dict[str, str | None]:
        return {"redis1": "redis4", "redis2": "redis5", "redis3": "redis6"}

    def lag(self, replica: str) -> None:
        self.lagging.add(replica)

    def catch_up(self, replica: str) -> None:
        self.lagging.discard(replica)

    def fail_over(self, master: str) -> str:
        self.kill(master)
        return "another"

    def healthy(self, within_s: float) -> bool:
        assert within_s > 0, "a heal waits"
        return set(self.states.values()) == {"runs"} and not self.lagging

    def _set(self, name: str, state: str) -> None:
        self.arena.did.append(f"{name} {state}")
        self.states[name] = state


@dataclass(frozen=True)
class Settings:
    store: wounds.StoreKind
    ttl_s: float = QUICK_S
    view_lease_s: float = QUICK_S
    wire_s: float = QUICK_S
    delay_s: float = QUICK_S


@dataclass
class Arena:
    kind: wounds.StoreKind
    did: list[str] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    cuts: set[tuple[str, str]] = field(default_factory=set)
    twins: list[Node] = field(default_factory=list)
    is_slow: bool = False

    def __post_init__(self) -> None:
        self.settings = Settings(self.kind)
        self.web = self
        self.nodes = {name: Node(name, self) for name in ("n1", "n2", "n3", "s1")}
        self.nodes["s1"].running = False
        for node in self.nodes.values():
            node.relay = Switch(self)
        self.etcd = Servers(self, dict.fromkeys(wounds.ETCD, "runs"))
        names = [f"redis{i}" for i in range(1, 7)] if self.kind == "cluster" else [""]
        self.store: Any = Servers(self, dict.fromkeys(names, "runs"))

    def spare_names(self) -> list[str]:
        return ["s1"]

    def slow(self, on: bool) -> None:
        self.did.append("slow")
        self.is_slow = on

    def start_twin(self, name: str) -> Node:
        self.did.append(f"twin {name}")
        self.twins.append(Node(name, self))
        return self.twins[-1]

    def kill_lease(self, node: str) -> bool:
        self.did.append(f"lease {node}")
        return True

    revoke = kill_lease

    def cut(self, a: str, b: str, direction: wounds.Direction = "both") -> None:
        assert a != b
        known = {*self.nodes, *wounds.ETCD, "web", *wounds.store_machines(self)}
        assert {a, b} <= known, (a, b)
        self.did.append(f"cut {a} {b} {direction}")
        self.cuts.add((a, b))

    def mend(self, a: str, b: str) -> None:
        self.cuts.discard((a, b))

    def state(self) -> dict[str, Any]:
        """All that a fault may change."""
        return {
            "nodes": {
                n.name: (n.running, n.frozen, n.offset_s, dict(n.relay.held)) for n in self.nodes.values() if n.relay
            },
            "busy": set(self.busy),
            "cuts": set(self.cuts),
            "twins": [twin.name for twin in self.twins if twin.running],
            "etcd": dict(self.etcd.states),
            "store": dict(self.store.states),
            "lagging": set(self.store.lagging),
            "slow": self.is_slow,
        }


BESIDE = {"etcd-compacted", "swizzled", "cut-flapping", "joins-and-drains", "strobe", "clock-strobed", "store-slow"}
CASES = [(name, kind) for name, fault in nemesis.FAULTS.items() for kind in sorted(fault.needs)]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_fault_strikes_and_its_heal_undoes_all_of_it(name: str, kind: wounds.StoreKind) -> None:
    arena = Arena(kind)
    before = arena.state()
    wound = nemesis.FAULTS[name].inflict(arena, random.Random(1))
    if name in BESIDE:
        struck(arena)
    wound.heal()
    assert arena.did, "it did something"
    assert arena.state() == before
    wound.heal()
    assert arena.state() == before, "a second heal changes nothing"


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_heals_though_everything_has_died_meanwhile(name: str, kind: wounds.StoreKind) -> None:
    arena = Arena(kind)
    wound = nemesis.FAULTS[name].inflict(arena, random.Random(2))
    for node in wound.victims:
        arena.nodes[node].running = False
    wound.heal()
    assert not arena.busy
    assert not arena.cuts
    for node in wound.victims:
        assert arena.nodes[node].running or node in arena.spare_names()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_same_seed_strikes_the_same(name: str, kind: wounds.StoreKind) -> None:
    told = []
    for _ in range(2):
        wound = nemesis.FAULTS[name].inflict(Arena(kind), random.Random(5))
        wound.heal()
        told.append((wound.victims, wound.detail))
    assert told[0] == told[1]


def test_no_fault_takes_a_node_that_another_holds() -> None:
    arena = Arena("single")
    rng = random.Random(3)
    held = [nemesis.FAULTS["freeze-long"].inflict(arena, rng) for _ in range(3)]
    assert sorted(wound.victims[0] for wound in held) == ["n1", "n2", "n3"]
    before = arena.state()
    for name in ("kill", "all-nodes-killed", "swizzled", "clock-stepped", "confirms-lost"):
        with pytest.raises(nemesis.Unable):
            nemesis.FAULTS[name].inflict(arena, rng)
    assert arena.state() == before, "who can do nothing does nothing"
    held[0].heal()
    assert nemesis.FAULTS["kill"].inflict(arena, rng).victims == held[0].victims


def test_what_fails_half_way_is_undone() -> None:
    arena = Arena("single")
    before = arena.state()
    arena.kill_lease = lambda _: False  # type: ignore[method-assign,assignment]
    with pytest.raises(nemesis.Unable):
        nemesis.FAULTS["lease-killed"].inflict(arena, random.Random(1))
    assert arena.state() == before


def test_a_heal_that_fails_is_tried_again_and_the_rest_of_it_is_done() -> None:
    arena = Arena("single")
    before = arena.state()
    wound = nemesis.FAULTS["store-killed"].inflict(arena, random.Random(1))
    arena.store.away = True
    with pytest.raises(errors.StoreUnavailable):
        wound.heal()
    arena.store.away = False
    wound.heal()
    assert arena.state() == before


class Draining:
    """A spare that takes a while to end; a second SIGTERM would cut its drain short."""

    name, fake_clock, relay = "s1", False, None

    def __init__(self) -> None:
        self.starts = 0
        self._unready = 0
        self._looks_left = 0
        self._told = False

    @property
    def running(self) -> bool:
        self._looks_left -= self._told
        return self._looks_left > 0

    def start(self) -> None:
        self.starts += 1
        self._looks_left, self._told = 20, False
        self._unready = 3

    def ready(self) -> bool:
        self._unready -= 1
        return self._unready < 0

    def term(self) -> None:
        assert self._unready < 0, "it handles no signal yet"
        assert not self._told, "told to end a second time"
        self._told = True

    def cont(self) -> None: ...

    def kill(self) -> None:
        raise AssertionError("it was draining")


@pytest.mark.parametrize("ran", [False, True])
def test_a_draining_spare_is_left_to_drain(ran: bool) -> None:
    arena = Arena("single")
    spare: Any = Draining()
    arena.nodes["s1"] = spare
    if ran:
        spare.start()
    fault = dataclasses.replace(
        nemesis.FAULTS["joins-and-drains"],
        act=functools.partial(node_faults.joins_and_drains, pause_s=(0.001, 0.01)),
    )
    wound = fault.inflict(arena, random.Random(1))
    deadline = time.monotonic() + 10
    while spare.starts < 3:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    wound.heal()
    assert spare.running == ran
    assert wound.trouble == []


def test_an_error_of_what_goes_on_beside_is_the_heals_once() -> None:
    arena = Arena("cluster")
    before = arena.state()

    def fail_over(master: str) -> str:
        raise AssertionError(f"{master} has no replica")

    arena.store.fail_over = fail_over
    wound = nemesis.FAULTS["store-failed-over"].inflict(arena, random.Random(1))
    with pytest.raises(AssertionError, match="has no replica"):
        wound.heal()
    wound.heal()
    assert arena.state() == before
    (booked,) = wound.trouble
    assert "has no replica" in booked


def test_a_compaction_that_does_not_come_about_is_trouble() -> None:
    arena = Arena("single")
    arena.etcd.compact = lambda: 0  # type: ignore[method-assign]
    wound = nemesis.FAULTS["etcd-compacted"].inflict(arena, random.Random(1))
    deadline = time.monotonic() + 8
    while not wound.trouble:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    wound.heal()
    assert set(wound.trouble) == {"etcd was not compacted"}


def test_a_spare_that_never_becomes_ready_is_killed_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_faults, "READY_S", 0.05)
    arena = Arena("single")
    monkeypatch.setattr(Node, "ready", lambda _: False)
    wound = nemesis.FAULTS["joins-and-drains"].inflict(arena, random.Random(1))
    struck(arena)
    wound.heal()
    assert not arena.nodes["s1"].running
    assert "did not become ready" in wound.trouble[0]


def test_a_freeze_keeps_its_own_time() -> None:
    arena = Arena("single")
    wound = nemesis.FAULTS["freeze-around-vl"].inflict(arena, random.Random(1))
    assert wound.lasts_s is not None
    node, began = arena.nodes[wound.victims[0]], time.monotonic()
    assert node.frozen
    while node.frozen:
        assert time.monotonic() - began < wound.lasts_s, "it wakes by itself"
        time.sleep(0.001)
    assert wound.lasts_s - 0.12 <= time.monotonic() - began
    wound.heal()


def struck(arena: Arena) -> None:
    """Wait for the first deed of a fault that goes on beside us."""
    deadline = time.monotonic() + 8
    while not arena.did:
        assert time.monotonic() < deadline
        time.sleep(0.01)
