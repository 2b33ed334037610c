"""A session against a real etcd: joining, confirming, losing the lease, and what the conditions refuse."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from shared import agreement, errors, etcd, keys, membership, placement, records, views
from tests import servers

QUICK = agreement.Settings(
    view_lease_s=2.0, wire_s=0.5, confirm_s=0.3, gather_s=0.2, rejoin_s=0.5, lease_ttl_s=3, look_s=0.3
)
FINGERPRINT = {"ring": "xxh3-64/16"}


def value(fingerprint=FINGERPRINT):
    return records.MemberValue(weight=1.0, address="here", fingerprint=fingerprint)


class Peer:
    """A session whose owner of sites owns nothing, and so acknowledges at once."""

    def __init__(self, address, cluster, node, *, fingerprint=FINGERPRINT, settings=QUICK):
        self.store = etcd.Etcd(address)
        self.effects = []
        self.session = membership.Session(
            self.store, cluster, node=node, value=value(fingerprint), settings=settings, on_effect=self.on_effect
        )
        self.task = asyncio.create_task(self.session.run())

    def on_effect(self, effect, _now_s):
        self.effects.append(effect)
        match effect:
            case agreement.Adopt():
                asyncio.get_running_loop().call_soon(self.session.feed, agreement.Applied(effect.views[-1][0]))
            case agreement.StopAll():
                asyncio.get_running_loop().call_soon(self.session.feed, agreement.Stopped(effect.incarnation))

    def of(self, kind):
        return [effect for effect in self.effects if isinstance(effect, kind)]

    async def close(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.store.close()


async def until(condition, what, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.02)


@pytest.fixture
async def peers(etcd, cluster):
    opened = []

    def open_peer(node, **kwargs):
        opened.append(Peer(etcd, cluster, node, **kwargs))
        return opened[-1]

    yield open_peer
    for peer in opened:
        await peer.close()


@pytest.fixture
def names(cluster):
    return keys.EtcdKeys(cluster)


async def test_three_nodes_agree_on_one_view_and_have_authority(peers):
    nodes = [peers(node) for node in ("a", "b", "c")]
    await until(lambda: all(p.session.joined and p.session.authority() for p in nodes), "all in the view")
    await until(lambda: len({p.session.state.epoch for p in nodes}) == 1, "one epoch")
    assert set(nodes[0].session.state.view.members) == {"a", "b", "c"}
    await until(lambda: all(p.of(agreement.Settle) for p in nodes), "everybody past")


async def test_a_killed_lease_stops_its_node_and_the_rest_settle_by_its_word(peers, names):
    one, two = peers("a"), peers("b")
    await until(
        lambda: one.session.authority() and two.session.authority() and len(two.session.state.view.members) == 2,
        "two members",
    )
    await until(lambda: not two.session.state.waiting and not one.session.state.waiting, "settled")
    first = one.session.state.incarnation
    killed = time.monotonic()
    assert await asyncio.to_thread(two.store.kill_lease, names, "a", 3.0)
    await until(lambda: one.of(agreement.StopAll), "a stops")
    assert not one.session.authority()
    await until(lambda: set(two.session.state.view.members) == {"b"}, "a view without a")
    await until(lambda: not two.session.state.waiting, "settled")
    assert time.monotonic() - killed < QUICK.silence_s, "by its word, not by waiting"
    assert two.of(agreement.Settle)[-1].how["a"] in {"ack", "resigned"}
    await until(lambda: one.session.joined, "a is back")
    assert one.session.state.incarnation > first
    assert time.monotonic() - killed > 2.5, "not before its rest"


async def test_a_drained_node_leaves_by_itself(peers):
    one, two = peers("a"), peers("b")
    await until(
        lambda: one.session.joined and two.session.joined and len(two.session.state.view.members) == 2, "two members"
    )
    one.session.feed(agreement.Drain())
    await asyncio.wait_for(asyncio.shield(one.task), 15)
    await until(lambda: set(two.session.state.view.members) == {"b"}, "a view without a")


async def test_an_id_that_is_alive_is_refused_after_its_ttl(peers):
    one = peers("a")
    await until(lambda: one.session.joined, "the first")
    second = peers("a")
    with pytest.raises(errors.ConfigError, match="is taken"):
        await asyncio.wait_for(asyncio.shield(second.task), 15)
    assert one.session.joined


async def test_another_fingerprint_is_refused_with_the_part_that_differs(peers):
    one = peers("a")
    await until(lambda: one.session.joined, "the first")
    other = peers("b", fingerprint={"ring": "xxh3-64/32"})
    with pytest.raises(errors.FingerprintMismatch, match="xxh3-64/32"):
        await asyncio.wait_for(asyncio.shield(other.task), 15)


async def test_what_the_conditions_refuse(etcd, names):
    """Confirm and propose are single transactions: own key, epoch held, no member key put since the read."""
    store = membership.etcd.Etcd(etcd)
    lease, ttl = store.grant(10)
    assert ttl >= 10
    created, incarnation, _ = store.join(names, "a", value(), lease)
    assert created
    assert store.join(names, "a", value(), lease) == (False, incarnation, lease)
    mine = agreement.Mine("a", incarnation, lease)
    assert not store.confirm(names, mine, agreement.Confirm(7, 0))[0], "there is no view yet"
    read = store.look(names)
    state = agreement.State(me="a", value=value(), settings=QUICK)
    wanted = views._wanted(state, read, (agreement.UNKNOWN,))
    store.join(names, "b", value(), lease)
    late = agreement.Propose(wanted, 0, read.revision)
    assert not store.propose(names, mine, late)[0], "a member key was put since"
    fresh = agreement.Propose(wanted, 0, store.look(names).revision)
    other = replace(mine, incarnation=incarnation + 1)
    assert not store.propose(names, other, fresh)[0], "the key is of another incarnation"
    assert not store.propose(names, replace(mine, lease=lease + 1), fresh)[0], "the key is of another lease"
    assert store.propose(names, mine, fresh)[0]
    assert not store.propose(names, mine, fresh)[0], "the view has moved on"
    first = store.look(names)
    at_first = replace(mine, view_bytes=first.view_bytes)
    assert store.confirm(names, at_first, agreement.Confirm(first.epoch, 0))[0]
    assert not store.confirm(names, at_first, agreement.Confirm(first.epoch - 1, 0))[0]
    assert not store.confirm(names, replace(at_first, lease=lease + 1), agreement.Confirm(first.epoch, 0))[0]
    another = replace(mine, view_bytes=first.view_bytes.replace(b'"generation"', b'"generation "'))
    assert another != at_first
    assert not store.confirm(names, another, agreement.Confirm(first.epoch, 0))[0], "another view of that revision"

    second = agreement.Propose(views._wanted(state, first, ()), first.epoch, first.revision)
    assert store.propose(names, at_first, second)[0]
    newest = store.look(names)
    third = agreement.Propose(views._wanted(state, newest, ()), newest.epoch, newest.revision)
    assert store.propose(names, replace(mine, view_bytes=newest.view_bytes), third)[0]
    last = store.look(names)
    assert [epoch for epoch, _ in store.chain(names, last.view, first.epoch)] == [newest.epoch]
    assert not store.weigh(names, replace(mine, lease=lease + 1), value())
    assert not store.leave(names, replace(mine, lease=lease + 1), last.epoch)
    assert store.revoke(lease)
    at_last = replace(mine, view_bytes=last.view_bytes)
    assert not store.confirm(names, at_last, agreement.Confirm(last.epoch, 0))[0], "the key is gone with its lease"
    assert store.keepalive(lease) <= 0
    store.close()


async def test_a_value_nested_too_deeply_is_passed_over_as_any_that_cannot_be_read(etcd, names):
    store = membership.etcd.Etcd(etcd)
    deep = b"[" * 100_000
    for key in (names.member("odd"), names.beat(7)):
        store._call(
            lambda client, how, key=key: client.kvstub.Put(
                membership.etcd.etcdrpc.PutRequest(key=key.encode(), value=b'{"weight":' + deep), **how
            )
        )
    assert len(store.look(names).strange) == 2
    store.close()


async def test_a_watch_whose_channel_was_closed_for_another_ends(etcd, names, monkeypatch):
    store = membership.etcd.Etcd(etcd)
    client = store._client()
    monkeypatch.setattr(store, "_client", lambda: client)
    client.close()
    assert list(store.hints(names, threading.Event())) == []


async def test_a_key_of_our_number_on_anothers_lease_is_not_ours(peers):
    """As after an etcd that went back, and gave the number out again."""
    one = peers("a")
    await until(lambda: one.session.joined, "it has joined")
    state = one.session.state
    seen = one.session._look(state).snapshot
    assert "a" in seen.members
    one.session._lease_of[state.incarnation] += 1
    assert "a" not in one.session._look(state).snapshot.members


async def test_the_watch_hints_at_changes_and_ends_when_told(etcd, names):
    store = membership.etcd.Etcd(etcd)
    stop = threading.Event()
    seen = []

    def watch():
        seen.extend(1 for _ in store.hints(names, stop))

    thread = threading.Thread(target=watch)
    thread.start()
    lease, _ = store.grant(10)
    deadline = time.monotonic() + 10
    number = 0
    while not seen and time.monotonic() < deadline:
        number += 1
        store.join(names, f"n{number}", value(), lease)
        await asyncio.sleep(0.05)
    assert seen
    stop.set()
    store.close()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


async def test_a_store_that_does_not_answer_is_said_in_time():
    store = etcd.Etcd("127.0.0.1:1", call_s=0.3)
    began = time.monotonic()
    with pytest.raises(errors.StoreUnavailable, match=r"127\.0\.0\.1:1"):
        await asyncio.to_thread(store.look, keys.EtcdKeys("x"))
    assert time.monotonic() - began < 3
    store.close()


@pytest.mark.parametrize("text", ["", "localhost", "host:port", ":::"])
def test_endpoints_that_are_none_are_refused(text):
    with pytest.raises(errors.ConfigError):
        etcd.Etcd(text)


def test_a_view_survives_its_encoding(names):
    view = records.View(
        members={"a": records.Member(incarnation=3, weight=1.5, address="x")},
        fingerprint=FINGERPRINT,
        elders=(("", 0), ("b", 9)),
    )
    held = placement.Placement.of(view, 5)
    assert held.owner("example.com") == "a"
    assert held.incarnation("a") == 3
    assert held.incarnation("b") == 0


async def test_keys_that_cannot_be_read_are_passed_over_and_end_no_node(peers, names, etcd):
    """One bad value under the prefix is reported; members go on, and it never counts."""
    one = peers("a")
    await until(lambda: one.session.joined and one.session.authority(), "a member")
    await asyncio.to_thread(put, etcd, names.member("z"), b"{}")
    await asyncio.to_thread(put, etcd, names.beats() + "oops", b"{}")
    await asyncio.to_thread(put, etcd, names.override("x.example"), b"\xff\xfe")
    await until(lambda: one.session.snapshot is not None and len(one.session.snapshot.strange) == 3, "they are seen")
    assert one.session.authority()
    assert not one.task.done()
    assert set(one.session.state.view.members) == {"a"}


async def test_a_view_that_cannot_be_read_ends_authority_and_no_node(peers, names, etcd):
    one = peers("a")
    await until(one.session.authority, "authority")
    await asyncio.to_thread(put, etcd, names.view(), b"?")
    await until(lambda: not one.session.authority(), "no authority")
    assert not one.task.done()
    assert "not crawlring's" in one.session.trouble


async def test_a_fault_in_the_owner_ends_the_session_and_its_authority(peers):
    """Half a node is worse than none: what the owner of sites raises comes out of `run`."""
    one = peers("a")
    await until(one.session.authority, "authority")

    def broken(_effect, _now_s):
        raise ArithmeticError("a bug")

    one.session._on_effect = broken
    peers("b")
    with pytest.raises(ArithmeticError):
        await asyncio.wait_for(asyncio.shield(one.task), 15)
    assert not one.session.authority()


def put(address, key, value):
    store = membership.etcd.Etcd(address)
    request = membership.etcd.etcdrpc.RequestOp(
        request_put=membership.etcd.etcdrpc.PutRequest(key=key.encode(), value=value)
    )
    assert store._txn([], [request]).succeeded
    store.close()


async def test_an_etcd_that_refuses_connections_is_not_asked_in_a_spin(tmp_path, cluster):
    server = servers.etcd35(tmp_path)
    server.start()
    peer = Peer(server.address, cluster, "a")
    try:
        await until(peer.session.authority, "in the view")
        server.kill()
        failed = []
        feed = peer.session.feed

        def counted(event):
            failed.append(isinstance(event, agreement.Failed))
            feed(event)

        peer.session.feed = counted
        peer.session.feed(agreement.Drain())  # what it asks of etcd now has no pause of its own
        began = time.monotonic()
        await until(lambda: sum(failed) >= 5, "calls fail")
        while time.monotonic() < began + 2.0:
            await asyncio.sleep(0.02)
        assert sum(failed) < 80
    finally:
        await peer.close()
        server.kill()
