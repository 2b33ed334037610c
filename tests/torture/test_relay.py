"""The relay on a node's way to its stores: it changes nothing by itself, and each rule does what it says and no more."""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordinator import local, nodes
from shared import agreement, errors, etcd, keys, records
from tests.torture import relay
from tests.torture.rules import Rule

CALL_S = 0.4
WITHIN_S = 30.0
VALUE = records.MemberValue(weight=1.0, address="", fingerprint={})


@dataclass
class Way:
    """A relay, clients behind it and one that goes past it; a member has joined and confirmed."""

    rules: relay.Relay
    through: etcd.Etcd
    """It has patience: what is not answered here within that time is lost on a busy machine too."""
    hasty: etcd.Etcd
    """It gives up soon: for calls that are not to be answered."""
    direct: etcd.Etcd
    names: keys.EtcdKeys
    redis: tuple[str, int]
    lease: int = 0
    incarnation: int = 0
    epoch: int = 0
    view_bytes: bytes = b""

    @property
    def mine(self) -> agreement.Mine:
        return agreement.Mine("n1", self.incarnation, self.lease, self.view_bytes)

    def confirm(self, store: etcd.Etcd | None = None) -> bool:
        call = agreement.Confirm(epoch=self.epoch, applied=self.epoch)
        return (store or self.through).confirm(self.names, self.mine, call)[0]

    def look(self, store: etcd.Etcd | None = None) -> agreement.Snapshot:
        return (store or self.through).look(self.names)

    def beat(self) -> int:
        """Revision of the last confirm that took effect."""
        return self.direct.look(self.names).beats[self.incarnation].revision

    def refused(self, call: Callable[[etcd.Etcd], object]) -> None:
        """It is not answered."""
        with pytest.raises(errors.StoreUnavailable, match="deadline"):
            call(self.hasty)


@pytest.fixture
def way(etcd: str, valkey: str, cluster: str, tmp_path: Path) -> Iterator[Way]:
    ports = [local.free_port() for _ in range(4)]
    here = [f"{local.LOOPBACK}:{port}" for port in ports]
    control = tmp_path / "rules.json"
    command = [
        *(sys.executable, "-P", "-m", "tests.torture.relay", "--etcd", f"{etcd},{etcd},{etcd}"),
        *("--listen", ",".join(here[:3]), "--control", str(control)),
        *("--redis", valkey.removeprefix("redis://").partition("/")[0], "--redis-listen", here[3]),
    ]
    child = local.Child(command, log=tmp_path / "relay.log", environ=nodes.packages())
    try:
        until(lambda: "ready" in child.log.read_text(), "the relay is ready")
        yield from joined(relay.Relay(control), ",".join(here[:3]), etcd, cluster, (local.LOOPBACK, ports[3]))
        assert child.poll() is None, child.last_words()
    finally:
        child.stop()
    assert child.poll() == 0
    assert "Traceback" not in child.log.read_text(), child.log.read_text()


def joined(rules: relay.Relay, here: str, there: str, cluster: str, redis: tuple[str, int]) -> Iterator[Way]:
    through, hasty, direct = etcd.Etcd(here, call_s=5), etcd.Etcd(here, call_s=CALL_S), etcd.Etcd(there, call_s=5)
    with contextlib.closing(through), contextlib.closing(hasty), contextlib.closing(direct):
        way = Way(rules, through, hasty, direct, keys.EtcdKeys(cluster), redis)
        assert through.found(way.names, {})
        way.lease, _ = through.grant(60)
        _, way.incarnation, _ = through.join(way.names, "n1", VALUE, way.lease)
        seen = through.look(way.names)
        way.epoch, way.view_bytes = seen.epoch, seen.view_bytes
        assert way.confirm()
        yield way


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WITHIN_S:g} s: {what}"
        time.sleep(0.02)


def test_without_rules_calls_answers_errors_and_the_watch_pass_unchanged(way: Way) -> None:
    assert way.look() == way.direct.look(way.names)
    assert way.through.keepalive(way.lease) == 60
    assert way.through.version() == way.direct.version()
    for store in (way.through, way.direct):
        with pytest.raises(errors.StoreRefused, match="requested lease not found"):
            store.join(way.names, "n2", VALUE, 12345)
    hints = hinted(way)
    assert way.direct.drain(way.names, "n1")
    until(lambda: hints, "a hint")


def test_an_etcd_that_is_away_is_away_behind_the_relay_too(tmp_path: Path) -> None:
    nothing, here = f"{local.LOOPBACK}:{local.free_port()}", f"{local.LOOPBACK}:{local.free_port()}"
    command = [
        *(sys.executable, "-P", "-m", "tests.torture.relay", "--etcd", nothing, "--listen", here),
        *("--control", str(tmp_path / "rules.json")),
    ]
    child = local.Child(command, log=tmp_path / "relay.log", environ=nodes.packages())
    try:
        until(lambda: "ready" in child.log.read_text(), "the relay is ready")
        with contextlib.closing(etcd.Etcd(here, call_s=5)) as store:
            with pytest.raises(errors.StoreUnavailable, match="unavailable"):
                store.grant(5)
            with pytest.raises(errors.StoreUnavailable, match="unavailable"):
                store.keepalive(5)
    finally:
        child.kill()


def test_each_transaction_is_known_by_what_it_writes(way: Way) -> None:
    view = way.look().view
    assert view is not None
    propose = agreement.Propose(view=view, epoch=way.epoch, revision=0, drop_beats=())
    calls: dict[str, Callable[[etcd.Etcd], object]] = {
        "confirm": way.confirm,
        "propose": lambda store: store.propose(way.names, way.mine, propose),
        "join": lambda store: store.join(way.names, "n3", VALUE, way.lease),
        "resign": lambda store: store.resign(way.names, "n1", way.incarnation),
        "weigh": lambda store: store.weigh(way.names, way.mine, VALUE),
        "look": way.look,
        "lease": lambda store: store.grant(60),
        "keepalive": lambda store: store.keepalive(way.lease),
        "leave": lambda store: store.leave(way.names, way.mine, way.epoch),
    }
    for kind, call in calls.items():
        way.rules.set("test", Rule(kind, "drop"))  # type: ignore[arg-type]  # a name of the table
        way.refused(call)
        for other in calls.keys() - {kind}:
            calls[other](way.through)


def test_a_call_that_is_dropped_takes_no_effect_and_one_whose_answer_is_lost_does(way: Way) -> None:
    before = way.beat()
    way.rules.set("test", Rule("confirm", "drop"))
    way.refused(way.confirm)
    assert way.beat() == before
    way.rules.set("test", Rule("confirm", "lose"))
    way.refused(way.confirm)
    assert way.beat() > before
    way.rules.clear()
    assert way.confirm()


def test_a_late_call_takes_effect_though_its_sender_has_given_up(way: Way) -> None:
    before, began = way.beat(), time.monotonic()
    way.rules.set("test", Rule("confirm", "delay", 1.5, 1.5))
    way.refused(way.confirm)
    assert way.beat() == before
    until(lambda: way.beat() > before, "the late confirm takes effect")
    assert time.monotonic() - began >= 1.5
    way.rules.set("test", Rule("look", "delay", 0.1, 0.1))
    began = time.monotonic()
    way.look()
    assert time.monotonic() - began >= 0.2, "there and back"


def test_late_calls_overtake_each_other(way: Way) -> None:
    way.rules.set("test", Rule("look", "delay", 0.0, 0.2))
    with ThreadPoolExecutor(12) as pool:
        asked = {pool.submit(way.look): number for number in range(12)}
        order = [asked[done] for done in as_completed(asked)]
    assert len(order) == 12
    assert order != sorted(order)


def test_a_repeated_confirm_takes_effect_twice(way: Way) -> None:
    way.rules.set("test", Rule("confirm", "repeat", 0.3, 0.3))
    assert way.confirm()
    first = way.beat()
    way.rules.clear("test")
    until(lambda: way.beat() > first, "the second delivery")


def test_a_share_of_the_messages_meets_a_rule(way: Way) -> None:
    way.rules.set("test", Rule("look", "drop", share=0.5))
    met = 0
    with ThreadPoolExecutor(24) as pool:
        for lost in pool.map(lambda _: unanswered(way), range(24)):
            met += lost
    assert 2 < met < 22


def test_a_stalled_watch_gives_no_hint_while_calls_pass(way: Way) -> None:
    hints = hinted(way)
    way.rules.set("test", Rule("watch", "drop"))
    assert way.direct.drain(way.names, "n1")
    way.look()
    assert not hints
    way.rules.clear("test")
    assert way.direct.drain(way.names, "n1")
    until(lambda: hints, "a hint once the rule is gone")
    assert len(hints) == 1, "what was lost stays lost"


def test_rules_of_two_faults_do_not_undo_each_other(way: Way) -> None:
    way.rules.set("one", Rule("look", "drop"))
    way.rules.set("two", Rule("keepalive", "drop"))
    way.rules.clear("one")
    way.look()
    way.refused(lambda store: store.keepalive(way.lease))
    way.rules.clear()
    assert way.through.keepalive(way.lease) == 60


def test_the_store_is_late_silent_or_cut_as_the_rules_say(way: Way) -> None:
    with socket.create_connection(way.redis, timeout=WITHIN_S) as client:
        assert ping(client) < 0.2
        way.rules.set("test", Rule("redis", "delay", 0.2, 0.2))
        assert 0.4 <= ping(client) < 1.0
        way.rules.set("test", Rule("any", "drop"))
        assert ping(client) < 0.2, "what is for etcd is not for the store"
        way.rules.set("test", Rule("redis", "drop"))
        client.settimeout(0.4)
        with pytest.raises(TimeoutError):
            ping(client)
        way.rules.clear()
        client.settimeout(WITHIN_S)
        assert client.recv(64) == b"+PONG\r\n", "it was only held up"
        way.rules.set("test", Rule("redis", "reset"))
        with pytest.raises(ConnectionResetError):
            client.recv(64)
    way.rules.clear()
    with socket.create_connection(way.redis, timeout=WITHIN_S) as client:
        client.sendall(b"QUIT\r\n")
        assert client.recv(64) == b"+OK\r\n"
        assert client.recv(64) == b"", "the end of a connection is passed on"


def ping(client: socket.socket) -> float:
    began = time.monotonic()
    client.sendall(b"PING\r\n")
    assert client.recv(64) == b"+PONG\r\n"
    return time.monotonic() - began


def unanswered(way: Way) -> bool:
    try:
        way.look(way.hasty)
    except errors.StoreUnavailable:
        return True
    return False


def hinted(way: Way) -> list[None]:
    """Hints that come through the relay from now on; the watch is established at the return."""
    hints: list[None] = []

    def watch() -> None:
        hints.extend(way.through.hints(way.names, threading.Event()))  # one by one, as they come

    threading.Thread(target=watch, daemon=True).start()

    def established() -> bool:
        """What was put before the watch began gives no hint; what is put after gives one at once."""
        assert way.direct.drain(way.names, "n1")
        deadline = time.monotonic() + 1
        while not hints and time.monotonic() < deadline:
            time.sleep(0.01)
        return bool(hints)

    until(established, "the watch is established")
    hints.clear()
    return hints
