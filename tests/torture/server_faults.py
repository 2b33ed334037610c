"""Faults of etcd, of the store and of the web: killed, frozen, parted, rolled back, compacted, slow."""

import functools
import random
import threading
import time
from collections.abc import Callable

from tests.torture import node_faults, wounds
from tests.torture.rules import Rule
from tests.torture.wounds import ETCD, Arena, Fault, StoreKind, Told, Undo

SINGLE: frozenset[StoreKind] = frozenset(("single",))
CLUSTER: frozenset[StoreKind] = frozenset(("cluster",))
SPARE_S = 0.5
WELL_S = 30.0  # a member that catches up, a replica that takes over its master's slots and is found again


def leader_killed(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    leader = _leader(arena, undo)
    undo.by(arena.etcd.restart, leader)
    arena.etcd.kill(leader)
    return Told((), f"{leader} led; SIGKILL")


def leader_frozen(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    """A frozen leader that wakes up answers keep-alives of a lease that its successor has already ended."""
    leader = _leader(arena, undo)
    seconds = arena.settings.ttl_s + rng.uniform(-2.0, 2.0)
    undo.by(arena.etcd.thaw, leader)
    end_s = time.monotonic() + seconds
    arena.etcd.freeze(leader)

    def work(over: threading.Event) -> None:
        over.wait(max(0.0, end_s - time.monotonic()))
        arena.etcd.thaw(leader)

    wounds.meanwhile(undo, work)
    return Told((), f"{leader} led; SIGSTOP for {seconds:.2f} s", lasts_s=seconds + 0.1)


def majority_lost(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    _well_again(arena, undo)
    lost = rng.sample(ETCD, 2)
    freeze = rng.random() < 0.5
    for member in lost:
        undo.by(arena.etcd.thaw if freeze else arena.etcd.restart, member)
        (arena.etcd.freeze if freeze else arena.etcd.kill)(member)
    return Told((), f"{'SIGSTOP' if freeze else 'SIGKILL'} to {' and '.join(lost)}")


def etcd_killed(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    _well_again(arena, undo)
    for member in ETCD:
        arena.etcd.kill(member)
    return Told((), "SIGKILL to all three")


def parted(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    _well_again(arena, undo)
    alone = rng.choice((arena.etcd.leader() or ETCD[0], *ETCD))
    for member in ETCD:
        if member != alone:
            undo.by(arena.mend, alone, member)
            arena.cut(alone, member)
    return Told((), f"{alone} parted from the other two; nodes reach all three")


def rolled_back(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    _well_again(arena, undo)
    member = rng.choice(ETCD)
    arena.etcd.save(member)
    pause_s = rng.uniform(3, 6)

    def work(over: threading.Event) -> None:
        over.wait(pause_s)
        assert arena.etcd.roll_back(member), f"{member} does not come back from its old data"

    wounds.meanwhile(undo, work)
    return Told((), f"{member} is given its data of {pause_s:.1f} s before")


def restored(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    _well_again(arena, undo)
    arena.etcd.save()
    pause_s, same = rng.uniform(3, 6), rng.random() < 0.5
    held = arena.settings
    # Rule 9 tells a new cluster at once. One that keeps its identity must stay away until no node's word from before
    # counts: a node that had seen nothing newer than the copy could not tell the two apart.
    away_s = (held.view_lease_s + held.wire_s + held.delay_s + SPARE_S) if same else 0.0

    def work(over: threading.Event) -> None:
        over.wait(pause_s)
        arena.etcd.stop()
        time.sleep(away_s)  # whether or not the time to heal has come
        arena.etcd.restore_all(same_cluster=same)

    wounds.meanwhile(undo, work)
    as_what = f"the same cluster after {away_s:.1f} s" if same else "a new cluster"
    return Told((), f"all three restored from {pause_s:.1f} s before, as {as_what}")


def compacted(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    def work(over: threading.Event) -> None:
        while not over.wait(rng.uniform(0.3, 1.5)):
            if not arena.etcd.compact():
                undo.trouble.append("etcd was not compacted")

    wounds.meanwhile(undo, work)
    return Told((), "compacted to the newest revision, every second or so")


def store_killed(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    if arena.settings.store == "single":
        undo.by(arena.store.restart)
        arena.store.kill()
        return Told((), "SIGKILL; started again on its append-only file")
    master = _master(arena, rng, undo)
    undo.by(arena.store.restart, master)
    arena.store.kill(master)
    return Told((), f"SIGKILL to the master {master}")


def store_frozen(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    freeze, thaw, which = _frost(arena, rng, undo)
    undo.by(thaw)
    freeze()
    return Told((), f"SIGSTOP to {which}")


def store_slow(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    freeze, thaw, which = _frost(arena, rng, undo)
    undo.by(thaw)

    def work(over: threading.Event) -> None:
        while not over.is_set():
            freeze()
            over.wait(rng.uniform(0.05, 0.4))
            thaw()
            over.wait(rng.uniform(0.02, 0.4))

    wounds.meanwhile(undo, work)
    return Told((), f"{which} stands still half of the time")


def failed_over(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    master = _master(arena, rng, undo)
    undo.by(arena.store.restart, master)

    def work(over: threading.Event) -> None:
        arena.store.fail_over(master)

    wounds.meanwhile(undo, work)
    return Told((), f"SIGKILL to {master}; its replica takes its place")


def failed_over_lagging(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    master = _master(arena, rng, undo)
    replica = arena.store.masters()[master]
    if replica is None:
        raise wounds.Unable(f"{master} has no replica")
    lag_s = rng.uniform(0.3, 1.5)  # the master alone would miss it after two seconds
    undo.by(arena.store.restart, master)
    undo.by(arena.store.catch_up, replica)
    arena.store.lag(replica)

    def work(over: threading.Event) -> None:
        over.wait(lag_s)
        arena.store.fail_over(master)

    wounds.meanwhile(undo, work)
    return Told((), f"{replica} hears nothing of {master} for {lag_s:.1f} s, then takes its place")


def slow_origin(arena: Arena, rng: random.Random, undo: Undo) -> Told:
    undo.by(arena.web.slow, False)
    arena.web.slow(True)
    return Told((), "every answer takes 3 s")


def _leader(arena: Arena, undo: Undo) -> str:
    leader = arena.etcd.leader()
    if leader is None:
        raise wounds.Unable("etcd has no leader")
    _well_again(arena, undo)
    return leader


def _well_again(arena: Arena, undo: Undo) -> None:
    """The heal ends with all three members in service."""
    undo.by(arena.etcd.start)


def _master(arena: Arena, rng: random.Random, undo: Undo) -> str:
    def well() -> None:
        assert arena.store.healthy(WELL_S), "the Redis Cluster is not whole again"

    masters = sorted(arena.store.masters())
    if not masters:
        raise wounds.Unable("nobody knows a master")
    undo.by(well)
    master: str = rng.choice(masters)
    return master


def _frost(arena: Arena, rng: random.Random, undo: Undo) -> tuple[Callable[[], None], Callable[[], None], str]:
    """How the store, or a master of it, is frozen and thawed; and which."""
    store = arena.store
    if arena.settings.store == "single":
        return store.freeze, store.thaw, "the store"
    master = _master(arena, rng, undo)
    return lambda: store.freeze(master), lambda: store.thaw(master), f"the master {master}"


def _relayed(name: str, seconds: tuple[float, float], says: str, rule: Rule) -> Fault:
    act = functools.partial(node_faults.relayed, by=name, says=says, rules=[rule])
    # Of a Redis Cluster a node learns the machines' own addresses, past any relay.
    return Fault(name, "store", says, seconds, act, frozenset(("nodes",)), SINGLE)


def _etcd(name: str, seconds: tuple[float, float], says: str, act: wounds.Act) -> Fault:
    return Fault(name, "etcd", says, seconds, act, frozenset(("etcd",)))


def _store(
    name: str,
    seconds: tuple[float, float],
    says: str,
    act: wounds.Act,
    needs: frozenset[StoreKind] = wounds.ANY_STORE,
) -> Fault:
    return Fault(name, "store", says, seconds, act, frozenset(("store",)), needs)


FAULTS = (
    _etcd("etcd-leader-killed", (3, 12), "SIGKILL to etcd's leader", leader_killed),
    _etcd("etcd-leader-frozen", (6, 7), "SIGSTOP to etcd's leader for the TTL, 2 s more or less", leader_frozen),
    _etcd("etcd-majority-lost", (3, 12), "two of three members killed or frozen", majority_lost),
    _etcd("etcd-all-killed", (1, 8), "SIGKILL to all three members", etcd_killed),
    _etcd("peers-parted", (4, 15), "one etcd member cut from the other two", parted),
    _etcd("etcd-member-rolled-back", (8, 12), "a member started again on old data", rolled_back),
    _etcd("etcd-restored", (8, 12), "all of etcd started again from old data (rule 9)", restored),
    _etcd("etcd-compacted", (4, 12), "history compacted under the watches, again and again", compacted),
    _store("store-killed", (1, 8), "SIGKILL to the store, or to a master of it", store_killed),
    _store("store-frozen", (1, 10), "SIGSTOP to the store, or to a master of it", store_frozen),
    _store("store-slow", (4, 12), "the store stands still for up to 0.4 s at a time", store_slow),
    _store("store-failed-over", (5, 12), "a master killed, its replica promoted", failed_over, CLUSTER),
    _store("store-failed-over-lagging", (8, 14), "the same, of a replica that lags", failed_over_lagging, CLUSTER),
    _relayed("store-answers-late", (4, 12), "the store's answers to one node late by up to half a second each", Rule("redis", "delay", 0.0, 0.5)),
    _relayed("store-silent-to-one", (2, 8), "a node's connections to the store are open and silent", Rule("redis", "drop")),
    _relayed("store-resets-one", (2, 8), "a node's connections to the store are reset", Rule("redis", "reset")),
    Fault("slow-origin", "slow", "every answer of the web takes 3 s", (5, 15), slow_origin, frozenset(("web",))),
)  # fmt: skip
