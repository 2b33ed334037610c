"""etcd through etcd3: every call with a deadline, endpoints rotated, answers as values; the only importer of etcd3.

Only etcd3's channels and unary stubs are used: its watcher binds late answers to the wrong watch, its helpers drop
revisions and its default is to wait for ever. Reads and writes are linearizable; nothing here decides anything.

etcd3 0.12.0 ships stubs that a current protobuf refuses to load, so our own of the same names stand in for them.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import msgspec

from shared import agreement, config, errors, etcd_access, etcdrpc, keys, records

sys.modules["etcd3.etcdrpc"] = etcdrpc

import etcd3  # noqa: E402  - after the stubs it is to use
import grpc  # noqa: E402

Answer = TypeVar("Answer")

CHANNEL = (
    # A new channel must not inherit another's back-off, or a restarted etcd is found minutes late.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),  # etcd says goodbye to a client that pings more often than every 5 s
    ("grpc.http2.ping_timeout_ms", 3_000),  # only this closes a connection whose other end is frozen
)
CHAIN_MAX = 64  # views read back before a node that slept through more of them starts afresh


class Etcd:
    """Blocking and thread-safe; raises StoreUnavailable when no endpoint answers in time."""

    def __init__(self, endpoints: str, *, call_s: float = 0.8, security: config.EtcdSecurity | None = None) -> None:
        self.call_s = call_s
        self.endpoints = etcd_access.endpoints(endpoints)
        self._security = security or config.EtcdSecurity()
        self._account = etcd_access.Account(self._security, call_s=call_s)
        self._certificates()  # an operator is to hear now of a file that cannot be read
        self._clients: dict[int, Any] = {}
        self._at = 0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, settings: config.Config) -> Self:
        """As a node or a command is configured."""
        return cls(settings.etcd, call_s=settings.membership.call_s, security=settings.etcd_security)

    def reach(self, names: keys.EtcdKeys) -> None:
        """Find an endpoint that lets us read the cluster's keys, so that the calls after this one begin with it.

        Raises StoreForbidden where every endpoint refuses us, StoreUnavailable where none answers.
        """
        request = etcdrpc.RangeRequest(key=names.prefix.encode(), range_end=_end(names.prefix), count_only=True)
        failures: list[errors.StoreUnavailable] = []
        for _ in self.endpoints:
            try:
                self._range(request)
            except errors.StoreUnavailable as error:
                failures.append(error)
            else:
                return
        raise etcd_access.joined(failures)

    # -- reading

    def look(self, names: keys.EtcdKeys) -> agreement.Snapshot:
        """The whole prefix in one linearizable read."""
        request = etcdrpc.RangeRequest(key=names.prefix.encode(), range_end=_end(names.prefix))
        return _snapshot(names, self._range(request))

    def chain(
        self, names: keys.EtcdKeys, view: records.View, epoch: int
    ) -> tuple[tuple[int, records.View], ...] | None:
        """The views after `epoch` and before `view`, oldest first, from etcd's history; None where it is compacted."""
        chain: list[tuple[int, records.View]] = []
        previous = view.previous
        while previous > agreement.revision_of(epoch):
            if len(chain) == CHAIN_MAX:
                return None
            request = etcdrpc.RangeRequest(key=names.view().encode(), revision=previous)
            try:
                answer = self._range(request)
            except errors.StoreRefused:
                return None
            if not answer.kvs or answer.kvs[0].mod_revision != previous:
                return None
            try:
                found = msgspec.json.decode(answer.kvs[0].value, type=records.View)
            except (ValueError, RecursionError):
                return None
            chain.append((agreement.epoch_of(found.generation, previous), found))
            previous = found.previous
        return tuple(reversed(chain))

    # -- writing, one transaction each

    def grant(self, ttl_s: int) -> tuple[int, int]:
        """A new lease: (id, TTL as etcd granted it)."""
        request = etcdrpc.LeaseGrantRequest(TTL=ttl_s)
        answer = self._call(lambda client, how: client.leasestub.LeaseGrant(request, **how))
        return answer.ID, answer.TTL

    def join(self, names: keys.EtcdKeys, node: str, value: records.MemberValue, lease: int) -> tuple[bool, int, int]:
        """Create the member key if absent: (created, incarnation, lease) of the key that is there now."""
        key = names.member(node)
        answer = self._txn(
            [_compare(key, "create_revision", 0)],
            [_put(key, value, lease=lease), _drop(names.rejoin(node))],
            [etcdrpc.RequestOp(request_range=etcdrpc.RangeRequest(key=key.encode()))],
        )
        if answer.succeeded:
            return True, answer.header.revision, lease
        found = answer.responses[0].response_range.kvs
        return False, found[0].create_revision if found else 0, found[0].lease if found else 0

    def keepalive(self, lease: int) -> int:
        """Remaining TTL in seconds; 0 or less: the lease is gone."""
        request = etcdrpc.LeaseKeepAliveRequest(ID=lease)
        answer = self._call(
            lambda client, how: next(iter(client.leasestub.LeaseKeepAlive(iter([request]), **how)), None)
        )
        if answer is None:
            raise errors.StoreUnavailable("etcd: the keep-alive stream ended without an answer")
        return int(answer.TTL)

    def confirm(self, names: keys.EtcdKeys, mine: agreement.Mine, call: agreement.Confirm) -> tuple[bool, int, int]:
        """Put our beat if the member key is ours and the view is at `call.epoch`: (done, revision, cluster id)."""
        beat = records.Beat(node=mine.node, applied=call.applied)
        answer = self._txn(
            [*_ours(names, mine), *_at(names, mine, call.epoch)], [_put(names.beat(mine.incarnation), beat)]
        )
        return answer.succeeded, answer.header.revision, answer.header.cluster_id

    def propose(self, names: keys.EtcdKeys, mine: agreement.Mine, call: agreement.Propose) -> tuple[bool, int, int]:
        """Put the next view if nothing under it changed since the read: (done, revision, cluster id)."""
        members = names.members()
        untouched = etcdrpc.Compare(
            result=etcdrpc.Compare.LESS,
            target=etcdrpc.Compare.MOD,
            key=members.encode(),
            range_end=_end(members),
            mod_revision=call.revision + 1,
        )
        answer = self._txn(
            [*_ours(names, mine), *_at(names, mine, call.epoch), untouched],
            [_put(names.view(), call.view), *(_drop(names.beat(old)) for old in call.drop_beats)],
        )
        return answer.succeeded, answer.header.revision, answer.header.cluster_id

    def resign(self, names: keys.EtcdKeys, node: str, incarnation: int) -> None:
        """Say in the beat of a lost incarnation that it has stopped; one that never confirmed has no beat to mark."""
        beat = names.beat(incarnation)
        self._txn(
            [_compare(beat, "create_revision", 0, result="GREATER")],
            [_put(beat, records.Beat(node=node, applied=0, resigned=True))],
        )

    def weigh(self, names: keys.EtcdKeys, mine: agreement.Mine, value: records.MemberValue) -> bool:
        """Put another weight under the same incarnation and lease."""
        key = names.member(mine.node)
        put = etcdrpc.RequestOp(
            request_put=etcdrpc.PutRequest(key=key.encode(), value=msgspec.json.encode(value), ignore_lease=True)
        )
        return bool(self._txn(_ours(names, mine), [put]).succeeded)

    def leave(self, names: keys.EtcdKeys, mine: agreement.Mine, epoch: int) -> bool:
        """Delete our member key and resign, in one transaction (rule 8)."""
        beat = records.Beat(node=mine.node, applied=epoch, resigned=True)
        answer = self._txn(
            _ours(names, mine), [_drop(names.member(mine.node)), _put(names.beat(mine.incarnation), beat)]
        )
        return bool(answer.succeeded)

    # -- the operator's

    def found(self, names: keys.EtcdKeys, fingerprint: dict[str, str]) -> bool:
        """Put a first view with nobody in it, if there is none: for who knows that nobody has acted before."""
        view = records.View(members={}, fingerprint=fingerprint)
        return bool(self._txn([_compare(names.view(), "create_revision", 0)], [_put(names.view(), view)]).succeeded)

    def kill_lease(self, names: keys.EtcdKeys, node: str, rejoin_s: float | None) -> bool:
        """Revoke a node's lease, and tell it when to come back; False where there is no such node."""
        seen = self.look(names).members.get(node)
        if seen is None:
            return False
        if rejoin_s is not None:
            lease, _ = self.grant(max(60, int(rejoin_s) + 60))
            self._txn([], [_put(names.rejoin(node), rejoin_s, lease=lease)])
        return self.revoke(seen.lease)

    def revoke(self, lease: int) -> bool:
        """End a lease and with it its keys; False where it had ended before."""
        request = etcdrpc.LeaseRevokeRequest(ID=lease)
        try:
            self._call(lambda client, how: client.leasestub.LeaseRevoke(request, **how))
        except errors.StoreRefused:
            return False
        return True

    def drain(self, names: keys.EtcdKeys, node: str) -> bool:
        """Give a node weight 0: it hands its sites over and exits; False where there is no such node."""
        seen = self.look(names).members.get(node)
        if seen is None:
            return False
        mine = agreement.Mine(node, seen.incarnation, seen.lease)
        return self.weigh(names, mine, msgspec.structs.replace(seen.value, weight=0.0))

    def version(self) -> str:
        return str(
            self._call(lambda client, how: client.maintenancestub.Status(etcdrpc.StatusRequest(), **how)).version
        )

    # -- the watch: a hint, never more

    def hints(self, names: keys.EtcdKeys, stop: threading.Event) -> Iterator[None]:
        """One item whenever members, view or overrides may have changed; ends with `stop` or on any failure."""
        ranges = [
            (names.members(), _end(names.members())),
            (names.overrides(), _end(names.overrides())),
            (names.view(), b""),
        ]
        requests = [
            etcdrpc.WatchRequest(create_request=etcdrpc.WatchCreateRequest(key=key.encode(), range_end=end))
            for key, end in ranges
        ]
        with self._lock:
            client = self._client()
        stub = etcdrpc.WatchStub(client.channel)
        over = threading.Event()
        try:
            known = self._account.metadata(client)
        except grpc.RpcError:
            return  # the calls say why
        try:
            call = stub.Watch(_held_open(requests, over), metadata=(("hasleader", "true"), *known))
        except ValueError:  # the channel was closed meanwhile, for another
            return
        try:
            for answer in call:
                if stop.is_set() or answer.canceled:
                    return
                if answer.events:
                    yield None
        except grpc.RpcError:
            return
        finally:
            over.set()  # or the thread that sends for this stream would wait for ever
            call.cancel()

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    # -- inside

    def _range(self, request: Any) -> Any:
        return self._call(lambda client, how: client.kvstub.Range(request, **how))

    def _txn(self, compare: list[Any], success: list[Any], failure: list[Any] | None = None) -> Any:
        request = etcdrpc.TxnRequest(compare=compare, success=success, failure=failure or [])
        return self._call(lambda client, how: client.kvstub.Txn(request, **how))

    def _call(self, send: Callable[[Any, dict[str, Any]], Answer]) -> Answer:
        """Send once: a call that was not answered may still take effect.

        Again only where etcd answered that it does not know us any more: then it has done nothing.
        """
        at = self._at
        try:
            with self._lock:
                at, client = self._at, self._client()
            known = self._account.metadata(client)
            try:
                return send(client, self._how(known))
            except grpc.RpcError as error:
                if not self._account.outdated(error):
                    raise
                return send(client, self._how(self._account.metadata(client, instead_of=known)))
        except grpc.RpcError as error:
            trouble = etcd_access.refusal(error, self.endpoints[at], self._security)
            if not isinstance(trouble, errors.StoreRefused):
                self._rotate(at, renew=etcd_access.broken(error, self.endpoints[at]))
            raise trouble from error
        except errors.ConfigError as error:  # a file that was there at the start; what runs waits until it is back
            raise errors.StoreForbidden(f"etcd: {error}") from error
        except ValueError as error:  # a channel that was closed meanwhile
            raise errors.StoreUnavailable("etcd: the connection is closed") from error

    def _how(self, known: etcd_access.Metadata) -> dict[str, Any]:
        return {"timeout": self.call_s, "metadata": known}

    def _certificates(self) -> dict[str, str]:
        return etcd_access.certificates(self._security, tls=self.endpoints[0].tls)

    def _client(self) -> Any:
        client = self._clients.get(self._at)
        if client is None:
            where = self.endpoints[self._at]
            client = self._clients[self._at] = etcd3.client(
                host=where.host, port=where.port, timeout=self.call_s, grpc_options=CHANNEL, **self._certificates()
            )
        return client

    def _rotate(self, failed: int, *, renew: bool) -> None:
        """Go on to the next endpoint; `renew`: read the certificates anew, which may have been changed meanwhile."""
        with self._lock:
            if self._at == failed:
                self._at = (failed + 1) % len(self.endpoints)
            old = self._clients.pop(failed, None) if renew else None
        if old is not None:
            old.close()


@contextlib.contextmanager
def reached(settings: config.Config) -> Iterator[Etcd]:
    """For one command: an etcd that answers, closed at the exit."""
    with contextlib.closing(Etcd.of(settings)) as store:
        store.reach(keys.EtcdKeys(settings.cluster))
        yield store


def _held_open(requests: list[Any], over: threading.Event) -> Iterator[Any]:
    """The requests, then silence until `over`: a stream whose sender ends is closed by etcd."""
    yield from requests
    over.wait()


def _snapshot(names: keys.EtcdKeys, answer: Any) -> agreement.Snapshot:
    """Sort one read into its kinds.

    A key that cannot be read is passed over and named: one bad value must not end every node. Without a readable
    view there is nothing to agree on: StoreUnavailable, and authority runs out.
    """
    members: dict[str, agreement.SeenMember] = {}
    beats: dict[int, agreement.SeenBeat] = {}
    overrides: dict[str, str] = {}
    rejoin: dict[str, float] = {}
    strange: list[str] = []
    view: records.View | None = None
    view_bytes = b""
    epoch = 0
    for kv in answer.kvs:
        key = kv.key.decode(errors="backslashreplace")
        kind, _, name = key.removeprefix(names.prefix).partition("/")
        try:
            if kind == "members":
                value = msgspec.json.decode(kv.value, type=records.MemberValue)
                members[name] = agreement.SeenMember(kv.create_revision, kv.lease, value)
            elif kind == "beats":
                beat = msgspec.json.decode(kv.value, type=records.Beat)
                beats[int(name)] = agreement.SeenBeat(kv.mod_revision, beat)
            elif kind == "overrides":
                overrides[name] = kv.value.decode()
            elif kind == "rejoin":
                rejoin[name] = msgspec.json.decode(kv.value, type=float)
            elif kind == "view":
                view = msgspec.json.decode(kv.value, type=records.View)
                view_bytes = kv.value
                epoch = agreement.epoch_of(view.generation, kv.mod_revision)
        except (ValueError, RecursionError) as error:  # what msgspec, int and decode raise
            if kind == "view":
                raise errors.StoreUnavailable(f"etcd key {key} is not crawlring's: {error}") from error
            strange.append(key)
    header = answer.header
    return agreement.Snapshot(
        header.cluster_id, header.revision, view, epoch, members, beats, overrides, rejoin, tuple(strange), view_bytes
    )


def _ours(names: keys.EtcdKeys, mine: agreement.Mine) -> list[Any]:
    """Our member key is there, of this incarnation and this lease."""
    key = names.member(mine.node)
    return [_compare(key, "create_revision", mine.incarnation), _compare(key, "lease", mine.lease)]


def _at(names: keys.EtcdKeys, mine: agreement.Mine, epoch: int) -> list[Any]:
    """The view is at this epoch (0: there is none), and the one we hold."""
    at = [_compare(names.view(), "mod_revision", agreement.revision_of(epoch))]
    return [*at, _compare(names.view(), "value", mine.view_bytes)] if epoch else at


def _compare(key: str, what: str, value: int | bytes, *, result: str = "EQUAL") -> Any:
    target = etcdrpc.Compare.CompareTarget.Value(what.partition("_")[0].upper())
    return etcdrpc.Compare(
        key=key.encode(), target=target, result=etcdrpc.Compare.CompareResult.Value(result), **{what: value}
    )


def _put(key: str, value: Any, *, lease: int = 0) -> Any:
    return etcdrpc.RequestOp(
        request_put=etcdrpc.PutRequest(key=key.encode(), value=msgspec.json.encode(value), lease=lease)
    )


def _drop(key: str) -> Any:
    return etcdrpc.RequestOp(request_delete_range=etcdrpc.DeleteRangeRequest(key=key.encode()))


def _end(prefix: str) -> bytes:
    """The key after every key that begins so; our prefixes end in a slash."""
    raw = prefix.encode()
    return raw[:-1] + bytes([raw[-1] + 1])
