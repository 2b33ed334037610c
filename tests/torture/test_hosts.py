"""Machines and stores do what whoever breaks them asks: every verb is shown on the real thing, and nothing stays."""

import contextlib
import ctypes
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from redis.cluster import RedisCluster

from tests.cluster import namespaces
from tests.torture import hosted, redis_cluster, stores

pytestmark = [pytest.mark.cluster, pytest.mark.netns]

ETCD, REDIS = ("etcd1", "etcd2", "etcd3"), tuple(f"redis{i}" for i in range(1, 7))
CLONE_NEWNET = 0x40000000
ELECTED_S = PROMOTED_S = HEALTHY_S = 20.0
UDP, TCP = 9_000, 9_001
KEYS = 300
QUICK = ("--cluster-node-timeout", "1000")  # a fail-over in two seconds instead of three
ROOT = Path(__file__).parent.parent.parent

_labels = itertools.count(1)


@dataclass(frozen=True)
class Site:
    hosts: dict[str, namespaces.Machine]
    etcd: stores.EtcdTrio
    single: stores.Single
    clustered: stores.Clustered


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All of it, built once; at the end no process, no namespace and no link is left."""
    folder = tmp_path_factory.mktemp("hosts")
    started: list[int] = []
    with namespaces.machines(["left", "right", "redis", *ETCD, *REDIS]) as hosts:
        built = Site(
            hosts,
            stores.EtcdTrio([hosts[name] for name in ETCD], folder / "etcd"),
            stores.Single(hosts["redis"], folder / "single"),
            stores.Clustered([hosts[name] for name in REDIS], folder / "clustered", options=QUICK),
        )
        with stores.running(built.etcd), stores.running(built.single), stores.running(built.clustered):
            yield built
            for store in (built.etcd, built.single, built.clustered):
                started.extend(store.pids().values())
    assert len(started) == len(ETCD) + 1 + len(REDIS), "every server runs at the end of its test"
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    assert namespaces.leavings(os.getpid()) == []


# -- machines


@pytest.mark.parametrize(
    ("direction", "arrives"),
    [("out", ["left hears"]), ("in", ["right hears"]), ("both", [])],
)
def test_a_cut_is_one_way_or_both_ways_as_asked(
    site: Site, direction: namespaces.Direction, arrives: list[str]
) -> None:
    left, right = site.hosts["left"], site.hosts["right"]
    with datagrams(left) as a, datagrams(right) as b:
        assert heard(a, b) == ["left hears", "right hears"]
        left.cut_from(right, direction=direction)
        left.cut_from(right, direction=direction)
        assert heard(a, b, ended=lambda: left.mend_from(right)) == arrives
        assert heard(a, b) == ["left hears", "right hears"]


def test_a_cut_is_between_two_alone(site: Site) -> None:
    left, right, other = (site.hosts[name] for name in ("left", "right", "redis"))
    left.cut_from(right)
    try:
        with datagrams(left) as a, datagrams(other) as b:
            assert heard(a, b) == ["left hears", "right hears"]
    finally:
        left.heal()


def test_a_reset_breaks_what_is_connected_and_refuses_what_comes(site: Site) -> None:
    left, right = site.hosts["left"], site.hosts["right"]
    with inside(right, socket.SOCK_STREAM) as door:
        door.bind((right.address, TCP))
        door.listen()
        with connected(left, right, door) as (near, far), connected(left, right, door) as (_, talking):
            left.reset_from(right)
            near.sendall(b"x")
            with pytest.raises(ConnectionError):
                near.recv(1)
            for other in (far, talking):
                other.sendall(b"x")
                with pytest.raises(ConnectionError):
                    other.recv(1)
        with inside(left, socket.SOCK_STREAM) as late, pytest.raises(ConnectionRefusedError):
            late.connect((right.address, TCP))
        left.mend_from(right)
        with connected(left, right, door) as (near, far):
            near.sendall(b"x")
            assert far.recv(1) == b"x"


def test_a_machine_without_its_link_is_alone_until_it_is_healed(site: Site) -> None:
    left, right = site.hosts["left"], site.hosts["right"]
    with datagrams(left) as a, datagrams(right) as b:
        left.set_link("down")
        left.cut_from(right)
        assert heard(a, b, ended=left.heal) == []
        assert heard(a, b) == ["left hears", "right hears"]


def test_two_uses_stand_side_by_side(site: Site) -> None:
    with namespaces.machines(1) as (other,):
        assert other.gate != site.hosts["left"].gate
        assert other.namespace not in {machine.namespace for machine in site.hosts.values()}


def test_what_a_killed_run_left_is_removed_by_the_next(site: Site) -> None:
    """Its processes too, or they would keep a namespace alive that has no name any more."""
    program = (
        "import subprocess, sys; from tests.cluster import namespaces\n"
        "with namespaces.machines(['a', 'b']) as hosts:\n"
        "    inner = subprocess.Popen([*hosts['a'].prefix, 'sleep', '600'])\n"
        "    print(inner.pid, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        inner = int(run.stdout.readline())
        run.send_signal(signal.SIGKILL)
    assert len(namespaces.leavings(run.pid)) == 5, "two namespaces, two links, a bridge"
    assert set(namespaces.leavings(run.pid)) <= set(namespaces.remove_leavings())
    assert namespaces.leavings(run.pid) == []
    hosted.until(lambda: not Path(f"/proc/{inner}").exists(), 5, "the process inside is gone")
    assert site.hosts["left"].namespace in namespaces.leavings(os.getpid())


# -- etcd


def test_another_member_leads_when_the_leader_is_killed_frozen_or_parted(site: Site) -> None:
    trio = site.etcd
    first = led(trio)
    trio.kill(first)
    assert not trio.healthy()
    hosted.until(lambda: trio.leader() not in (None, first), ELECTED_S, "another leads after a kill")
    trio.restart(first)
    assert trio.healthy(HEALTHY_S)
    second = led(trio)
    trio.freeze(second)
    hosted.until(lambda: trio.leader() not in (None, second), ELECTED_S, "another leads after a freeze")
    trio.thaw(second)
    assert trio.healthy(HEALTHY_S)
    third = led(trio)
    for name in ETCD:
        if name != third:
            trio.machines[third].cut_from(trio.machines[name])
    hosted.until(lambda: trio.leader() not in (None, third), ELECTED_S, "another leads after a cut")
    trio.machines[third].heal()
    assert trio.healthy(HEALTHY_S)


def test_a_compaction_forgets_what_was_before(site: Site) -> None:
    put(site.etcd, 3)
    old, new = site.etcd.revision() - 2, site.etcd.revision()
    assert site.etcd.compact() == new
    assert read_at(site.etcd, new)
    assert not read_at(site.etcd, old)


def test_a_member_on_its_old_data_is_taken_back(site: Site) -> None:
    trio = site.etcd
    for role in ("leader", "follower"):
        leader = led(trio)
        name = leader if role == "leader" else next(name for name in ETCD if name != leader)
        trio.save(name)
        (trio.folder / name / "saved" / "old").touch()
        put(trio, 5)
        before = trio.revision()
        assert trio.roll_back(name), f"{role}: {trio.members[name].last_words()}"
        assert trio.healthy(HEALTHY_S), role
        assert (trio.folder / name / "data" / "old").exists(), "it did start from the copy"
        assert trio.revision() == before, "nothing is lost while two remember"


def test_a_restored_trio_is_at_its_old_revision_as_a_new_cluster_or_the_same(site: Site) -> None:
    trio = site.etcd
    for same in (False, True):
        put(trio, 2)
        before, cluster = trio.revision(), cluster_id(trio)
        trio.save()
        assert trio.healthy(HEALTHY_S), "a copy disturbs nobody for long"
        put(trio, 3)
        assert trio.revision() == before + 3
        trio.restore_all(same_cluster=same)
        assert trio.revision() == before
        assert (cluster_id(trio) == cluster) is same


# -- Redis


def test_a_single_store_is_silent_when_frozen_and_remembers_when_killed(site: Site) -> None:
    single = site.single
    with redis.Redis.from_url(single.url, socket_timeout=5) as client:
        assert client.set("kept", "1")
    single.freeze()
    assert not single.healthy()
    single.thaw()
    assert single.healthy(HEALTHY_S)
    single.kill()
    assert not single.healthy()
    assert single.pids() == {}
    single.restart()
    with redis.Redis.from_url(single.url, socket_timeout=5) as client:
        assert client.get("kept") == b"1"


def test_a_replica_takes_its_masters_place_with_all_it_was_sent_and_a_lagging_one_without(site: Site) -> None:
    clustered = site.clustered
    pairs = clustered.masters()
    assert sorted(pairs.items()) == [("redis1", "redis4"), ("redis2", "redis5"), ("redis3", "redis6")]
    assert written(clustered, "early") == KEYS
    hosted.until(lambda: offset(clustered, "redis1") == offset(clustered, "redis4"), HEALTHY_S, "the replica has all")
    assert clustered.fail_over("redis1") == "redis4"
    assert present(clustered, "early") == KEYS
    clustered.restart("redis1")
    assert clustered.healthy(HEALTHY_S), clustered.trouble()
    assert clustered.masters()["redis4"] == "redis1"

    clustered.lag("redis5")
    assert written(clustered, "late") == KEYS, "it is acknowledged all the same"
    assert clustered.fail_over("redis2") == "redis5"
    lost = KEYS - present(clustered, "late")
    assert 60 <= lost <= 140, "about a third of the keys are of that master"
    assert present(clustered, "early") == KEYS
    clustered.restart("redis2")
    assert clustered.healthy(HEALTHY_S), clustered.trouble()


def test_a_frozen_master_is_replaced_and_the_whole_cluster_starts_again_on_its_data(site: Site) -> None:
    clustered = site.clustered
    pairs = clustered.masters()
    master = next(iter(pairs))
    clustered.freeze(master)
    hosted.until(lambda: pairs[master] in clustered.masters(), PROMOTED_S, "the replica is promoted")
    assert not clustered.healthy()
    clustered.thaw(master)
    assert clustered.healthy(HEALTHY_S), clustered.trouble()
    assert written(clustered, "again") == KEYS
    clustered.stop()
    clustered.start()
    assert present(clustered, "again") == KEYS


# -- helpers


def inside(machine: namespaces.Machine, kind: socket.SocketKind) -> socket.socket:
    """A socket of ours in that machine: a socket stays in the namespace of the thread that made it."""
    made: list[socket.socket] = []

    def enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/run/netns/{machine.namespace}").open() as there:
            assert libc.setns(there.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        made.append(socket.socket(socket.AF_INET, kind))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    made[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made[0].settimeout(5)
    return made[0]


@contextlib.contextmanager
def datagrams(machine: namespaces.Machine) -> Iterator[socket.socket]:
    with inside(machine, socket.SOCK_DGRAM) as found:
        found.bind((machine.address, UDP))
        yield found


def heard(a: socket.socket, b: socket.socket, *, ended: Callable[[], None] = lambda: None) -> list[str]:
    """Who hears the other. What is sent after `ended` arrives last, so that nothing is waited for in vain."""
    during, after = (f"{word} {next(_labels)}".encode() for word in ("during", "after"))
    for sender, hears in ((b, a), (a, b)):
        with contextlib.suppress(OSError):  # a link that is down says so
            sender.sendto(during, hears.getsockname())
    ended()
    came = {
        "left hears": came_before(after, sender=b, hears=a),
        "right hears": came_before(after, sender=a, hears=b),
    }
    return [who for who, found in came.items() if during in found]


def came_before(last: bytes, *, sender: socket.socket, hears: socket.socket) -> list[bytes]:
    """All that comes until this does; it is sent again where the line is not whole yet."""
    found: list[bytes] = []

    def over() -> bool:
        sender.sendto(last, hears.getsockname())
        with contextlib.suppress(TimeoutError):
            while last not in found:
                found.append(hears.recv(64))
        return last in found

    hears.settimeout(0.5)
    hosted.until(over, 10, "the line is whole again")
    return found


@contextlib.contextmanager
def connected(
    near: namespaces.Machine, far: namespaces.Machine, door: socket.socket
) -> Iterator[tuple[socket.socket, socket.socket]]:
    with inside(near, socket.SOCK_STREAM) as here:
        here.connect((far.address, TCP))
        there, _ = door.accept()
        with there:
            there.settimeout(5)
            yield here, there


def led(trio: stores.EtcdTrio) -> str:
    leader = trio.leader()
    assert leader is not None
    return leader


def asked(trio: stores.EtcdTrio, path: str, body: dict[str, object]) -> dict[str, object] | None:
    return hosted.posted(trio.endpoints.split(",", 1)[0], f"/v3/{path}", body, timeout_s=5)


def put(trio: stores.EtcdTrio, times: int) -> None:
    for _ in range(times):
        assert asked(trio, "kv/put", {"key": "a2V5", "value": "dmFsdWU="})


def read_at(trio: stores.EtcdTrio, revision: int) -> bool:
    return asked(trio, "kv/range", {"key": "a2V5", "revision": str(revision)}) is not None


def cluster_id(trio: stores.EtcdTrio) -> str:
    status = trio.status(led(trio))
    assert status is not None
    return str(status["header"]["cluster_id"])


@contextlib.contextmanager
def client(clustered: stores.Clustered) -> Iterator[RedisCluster]:
    """As an application has it: it finds its way by itself."""
    hosted.until(lambda: whole(clustered), HEALTHY_S, "all that run see a whole cluster")
    living = [clustered.machines[name].address for name in clustered.pids()]
    with contextlib.closing(RedisCluster(host=living[0], port=redis_cluster.REDIS)) as found:
        yield found


def whole(clustered: stores.Clustered) -> bool:
    return all("cluster_state:ok" in str(clustered.asked(name, "CLUSTER", "INFO")) for name in clustered.pids())


def written(clustered: stores.Clustered, prefix: str) -> int:
    with client(clustered) as found:
        return sum(bool(found.set(f"{prefix}{i}", "1")) for i in range(KEYS))


def present(clustered: stores.Clustered, prefix: str) -> int:
    with client(clustered) as found:
        return sum(found.get(f"{prefix}{i}") == b"1" for i in range(KEYS))


def offset(clustered: stores.Clustered, name: str) -> str:
    lines = str(clustered.asked(name, "INFO", "replication")).splitlines()
    return next(line for line in lines if line.startswith("master_repl_offset:"))
