"""Faults of nodes and of their ways to the stores: killed, drained, frozen, cut off, with a wrong clock or a twin."""

import functools
import random
import threading
import time
from collections.abc import Callable, Sequence

from tests.torture import wounds
from tests.torture.rules import Rule
from tests.torture.wounds import ETCD, Arena, Direction, Fault, Told, Undo

AROUND_S = 0.05  # before and after a time limit, where a check and the act it allows may come apart
STROBE_S = 0.1
READY_S = 15.0  # a spare that joins; longer than etcd and the store need when all is well
READY_LOOK_S = 0.05
STEPS_S = (-3600.0, -30.0, 30.0, 3600.0)

Links = Sequence[tuple[str, str]]


def kill(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    node.kill()
    return Told((node.name,), "SIGKILL")


def term(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    undo.by(wounds.gone, node)
    node.term()
    return Told((node.name,), "SIGTERM, and started again once it has drained")


def kill_and_restart(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    node.kill()
    node.start()
    return Told((node.name,), "SIGKILL, and started at once: before its lease ends")


def freeze(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    undo.by(node.cont)
    node.stop()
    return Told((node.name,), "SIGSTOP")


def freeze_short(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    return _freeze_for(arena, rng, undo, 10 ** rng.uniform(-2, 0))


def freeze_around_vl(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    held = arena.settings
    limit_s = rng.choice([held.view_lease_s, held.view_lease_s + held.wire_s])
    return _freeze_for(arena, rng, undo, limit_s + rng.uniform(-AROUND_S, AROUND_S))


def freeze_around_ttl(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    # etcd looks for ended leases twice a second, so the key goes a little after the TTL.
    return _freeze_for(arena, rng, undo, arena.settings.ttl_s + rng.uniform(-AROUND_S, 0.5 + AROUND_S))


def strobe(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    undo.by(node.cont)

    def work(over: threading.Event) -> None:
        while not over.is_set():
            node.stop()
            over.wait(STROBE_S)
            node.cont()
            over.wait(STROBE_S)

    wounds.meanwhile(undo, work)
    return Told((node.name,), f"SIGSTOP and SIGCONT every {STROBE_S:g} s")


def all_frozen(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    found = wounds.take_all(arena, undo)
    for node in found:
        undo.by(node.cont)
        node.stop()
    return Told(tuple(node.name for node in found), "SIGSTOP to all")


def all_killed(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    found = wounds.take_all(arena, undo)
    for node in found:
        node.kill()
    return Told(tuple(node.name for node in found), "SIGKILL to all")


def lease_killed(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    if not arena.kill_lease(node.name):
        raise wounds.Unable(f"the lease of {node.name} could not be killed")
    return Told((node.name,), "kill-lease")


def lease_revoked(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    if not arena.revoke(node.name):
        raise wounds.Unable(f"the lease of {node.name} could not be revoked")
    return Told((node.name,), "its lease revoked in etcd")


def cut_etcd(arena: Arena, rng: random.Random, undo: Undo, *, direction: Direction = "both") -> Told:
    node = wounds.take(arena, undo, rng)
    _cut(arena, undo, [(node.name, member) for member in ETCD], direction)
    return Told((node.name,), f"cut from etcd, {direction}")


def cut_etcd_one(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    member = rng.choice(ETCD)
    _cut(arena, undo, [(node.name, member)], "both")
    return Told((node.name,), f"cut from {member} alone")


def cut_store(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    _cut(arena, undo, [(node.name, machine) for machine in wounds.store_machines(arena)], "both")
    return Told((node.name,), "cut from the store")


def cut_store_one_way(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    direction: Direction = rng.choice(["out", "in"])
    _cut(arena, undo, [(node.name, machine) for machine in wounds.store_machines(arena)], direction)
    return Told((node.name,), f"cut from the store, {direction}")


def cut_both(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    _cut(arena, undo, [(node.name, machine) for machine in (*ETCD, *wounds.store_machines(arena))], "both")
    return Told((node.name,), "cut from etcd and the store")


def cut_web(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    _cut(arena, undo, [(node.name, "web")], "both")
    return Told((node.name,), "cut from the web")


def cut_web_frozen(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    """Its kernel holds packets for the web while it is frozen, and sends them once the way is open."""
    node = wounds.take(arena, undo, rng)
    undo.by(node.cont)
    undo.by(arena.mend, node.name, "web")
    arena.cut(node.name, "web")
    cut_s = rng.uniform(0.2, 1.5)
    frozen_s = rng.uniform(0.5, arena.settings.view_lease_s + arena.settings.wire_s)

    def work(over: threading.Event) -> None:
        over.wait(cut_s)
        node.stop()
        over.wait(frozen_s)
        arena.mend(node.name, "web")

    wounds.meanwhile(undo, work)
    return Told((node.name,), f"cut from the web, frozen {cut_s:.2f} s later, the way open {frozen_s:.2f} s after that")


def cut_flapping(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    links = [(node.name, member) for member in ETCD]
    undo.by(_mend, arena, links)

    def work(over: threading.Event) -> None:
        while not over.is_set():
            for link in links:
                arena.cut(*link)
            over.wait(rng.uniform(0.3, arena.settings.view_lease_s))
            _mend(arena, links)
            over.wait(rng.uniform(0.1, 1.5))

    wounds.meanwhile(undo, work)
    return Told((node.name,), "cut from etcd, again and again")


def swizzled(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    """Links stopped one by one and healed in another order: what found the deepest faults of FoundationDB."""
    found = wounds.take_all(arena, undo)
    links = [(node.name, to) for node in found for to in (*ETCD, *wounds.store_machines(arena))]
    links = rng.sample(links, max(1, len(links) * 2 // 3))
    for link in links:  # each its own step: healed one by one, in a random order
        undo.by(arena.mend, *link)

    def work(over: threading.Event) -> None:
        for link in rng.sample(links, len(links)):
            if over.wait(rng.uniform(0.05, 0.5)):
                return
            arena.cut(*link)

    wounds.meanwhile(undo, work)
    return Told(tuple(node.name for node in found), f"{len(links)} links stopped one by one")


def relayed(arena: Arena, rng: random.Random, undo: Undo, *, by: str, says: str, rules: Sequence[Rule]) -> Told:
    node = wounds.take(arena, undo, rng, able="relay")
    assert node.relay is not None
    undo.by(node.relay.clear, by)
    node.relay.set(by, *rules)
    return Told((node.name,), says)


def clock_stepped(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng, able="fake_clock")
    seconds = rng.choice(STEPS_S)
    undo.by(node.step_clock, 0.0)
    node.step_clock(seconds)
    return Told((node.name,), f"wall clock off by {seconds:+g} s")


def clock_strobed(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng, able="fake_clock")
    undo.by(node.step_clock, 0.0)

    def work(over: threading.Event) -> None:
        while not over.is_set():
            node.step_clock(rng.choice((0.0, *STEPS_S)))
            over.wait(rng.uniform(0.2, 1.0))

    wounds.meanwhile(undo, work)
    return Told((node.name,), "wall clock stepped to and fro")


def id_twice(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    node = wounds.take(arena, undo, rng)
    twin = arena.start_twin(node.name)
    undo.by(twin.kill)
    return Told((node.name,), "started once more under the same id, on another machine")


def joins_and_drains(
    arena: Arena, rng: random.Random, undo: Undo, *, pause_s: tuple[float, float] = (0.5, 4.0)
) -> Told:
    spares = [arena.nodes[name] for name in arena.spare_names() if name not in arena.busy]
    if not spares:
        raise wounds.Unable("no spare node is free")
    told: set[str] = set()

    def join_or_drain(node: wounds.NodeHost, over: threading.Event) -> None:
        if not node.running:
            told.discard(node.name)
            node.start()
            wait_ready(node, over)
        elif node.name not in told and node.ready():  # before that a SIGTERM ends it, and nothing drains
            told.add(node.name)
            node.term()

    def wait_ready(node: wounds.NodeHost, over: threading.Event) -> None:
        deadline = time.monotonic() + READY_S
        while node.running and not node.ready() and time.monotonic() < deadline:
            if over.wait(READY_LOOK_S):
                return

    def drain(node: wounds.NodeHost) -> None:
        wait_ready(node, threading.Event())
        if node.running and node.ready():
            told.add(node.name)
            node.term()
        elif node.running:
            undo.trouble.append(f"{node.name} did not become ready: killed")
            node.kill()

    def as_before(node: wounds.NodeHost, ran: bool) -> None:
        if node.running and not ran and node.name not in told:
            drain(node)
        if node.running and node.name in told:
            wounds.gone(node)
        if ran:
            wounds.run_again(node)

    for node in spares:
        arena.busy.add(node.name)
        undo.by(arena.busy.discard, node.name)
        undo.by(as_before, node, node.running)

    def work(over: threading.Event) -> None:
        while not over.is_set():
            join_or_drain(rng.choice(spares), over)
            over.wait(rng.uniform(*pause_s))

    wounds.meanwhile(undo, work)
    return Told(tuple(node.name for node in spares), "joining and draining in turns")


def _freeze_for(arena: Arena, rng: random.Random, undo: Undo, seconds: float) -> Told:
    """Frozen for just so long: the runner's own clock is too coarse for it."""
    node = wounds.take(arena, undo, rng)
    undo.by(node.cont)
    end_s = time.monotonic() + seconds
    node.stop()

    def work(over: threading.Event) -> None:
        over.wait(max(0.0, end_s - time.monotonic()))
        node.cont()

    wounds.meanwhile(undo, work)
    return Told((node.name,), f"SIGSTOP for {seconds:.3f} s", lasts_s=seconds + STROBE_S)


def _cut(arena: Arena, undo: Undo, links: Links, direction: Direction) -> None:
    for link in links:
        undo.by(arena.mend, *link)
        arena.cut(*link, direction)


def _mend(arena: Arena, links: Links) -> None:
    for link in links:
        arena.mend(*link)


def _fault(
    name: str,
    kind: wounds.Kind,
    seconds: tuple[float, float],
    says: str,
    act: Callable[[Arena, random.Random, Undo], Told],
    touches: wounds.Touch = "nodes",
) -> Fault:
    return Fault(name, kind, says, seconds, act, frozenset((touches,)))


def _relayed(name: str, kind: wounds.Kind, seconds: tuple[float, float], says: str, *rules: Rule) -> Fault:
    return _fault(name, kind, seconds, says, functools.partial(relayed, by=name, says=says, rules=rules))


def _one_way(direction: Direction) -> wounds.Act:
    return functools.partial(cut_etcd, direction=direction)


FAULTS = (
    _fault("kill", "crash", (4, 15), "SIGKILL, started again later", kill),
    _fault("kill-and-restart-at-once", "crash", (1, 2), "SIGKILL, started again before its lease ends", kill_and_restart),
    _fault("term", "planned", (4, 15), "SIGTERM: it drains, and is started again later", term),
    _fault("all-nodes-killed", "crash", (1, 8), "SIGKILL to all nodes at once", all_killed, "all-nodes"),
    _fault("freeze-short", "silent", (1, 2), "SIGSTOP for 10 ms to 1 s", freeze_short),
    _fault("freeze-around-vl", "silent", (5, 6), "SIGSTOP for VL or VL + G, 50 ms more or less", freeze_around_vl),
    _fault("freeze-around-ttl", "silent", (5, 6), "SIGSTOP for about the lease's TTL", freeze_around_ttl),
    _fault("freeze-long", "silent", (20, 60), "SIGSTOP for 20 to 60 s", freeze),
    _fault("strobe", "silent", (3, 10), "SIGSTOP and SIGCONT in quick turns", strobe),
    _fault("all-nodes-frozen", "silent", (2, 10), "SIGSTOP to all nodes at once", all_frozen, "all-nodes"),
    _fault("lease-killed", "killed_lease", (4, 6), "crawlring kill-lease", lease_killed),
    _fault("lease-revoked", "killed_lease", (4, 6), "the lease ends in etcd, and nobody was told", lease_revoked),
    _fault("cut-etcd", "silent", (3, 20), "no packet between a node and etcd", cut_etcd),
    _fault("cut-etcd-out-only", "silent", (3, 20), "what a node sends to etcd is lost", _one_way("out")),
    _fault("cut-etcd-in-only", "silent", (3, 20), "what etcd sends to a node is lost", _one_way("in")),
    _fault("cut-etcd-one", "none", (3, 15), "no packet between a node and one etcd member", cut_etcd_one),
    _fault("cut-store", "store", (2, 15), "no packet between a node and the store", cut_store),
    _fault("cut-store-one-way", "store", (2, 15), "packets between a node and the store are lost one way", cut_store_one_way),
    _fault("cut-both", "silent", (3, 20), "no packet between a node and etcd or the store", cut_both),
    _fault("cut-web", "none", (2, 10), "no packet between a node and the web", cut_web),
    _fault("cut-web-frozen", "silent", (6, 9), "cut from the web, frozen, and the way open again before it wakes", cut_web_frozen),
    _fault("cut-flapping", "silent", (5, 20), "a node's way to etcd comes and goes", cut_flapping),
    _fault("swizzled", "silent", (8, 16), "links stopped one by one, healed in another order", swizzled, "all-nodes"),
    _relayed("keepalives-lost", "silent", (8, 15), "keep-alives alone are lost", Rule("keepalive", "drop")),
    _relayed("confirms-lost", "silent", (4, 12), "confirms alone are lost", Rule("confirm", "drop")),
    _relayed("confirms-repeated", "none", (4, 12), "confirms arrive once more, late", Rule("confirm", "repeat", 0.1, 3.0)),
    _relayed("answers-lost", "silent", (3, 10), "half of etcd's answers are lost, not the calls", Rule("any", "lose", share=0.5)),
    _relayed("watch-stalled", "none", (4, 15), "nothing comes from a watch any more", Rule("watch", "drop")),
    _relayed("etcd-answers-late", "silent", (5, 15), "calls and answers late by up to 3 s, out of order", Rule("any", "delay", 0.0, 3.0)),
    _fault("clock-stepped", "clock", (4, 15), "the wall clock of a node off by 30 s or an hour", clock_stepped),
    _fault("clock-strobed", "clock", (4, 12), "the wall clock of a node stepped to and fro", clock_strobed),
    _fault("id-twice", "silent", (4, 15), "a second process under the same id", id_twice),
    _fault("joins-and-drains", "planned", (10, 25), "spare nodes join and drain in turns", joins_and_drains, "spares"),
)  # fmt: skip
