"""One node's session with the cluster: runs the steps of `views` against etcd, off the event loop.

It decides nothing. Effects become calls in threads, and each call's answer is the next event. What concerns the
sites (adopt, settle, stop) goes to the owner, in order, on the event loop.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec
import structlog

from shared import agreement, clock, config, errors, etcd, keys, placement, records, urls, views

TICK_S = 0.05
HINT_PAUSE_S = 0.3  # between watches, so that a broken etcd is not asked in a spin
FAILED_S = 0.1  # a failed call takes at least this long
VIEWS_KEPT = 64  # as they stood in etcd: the one we hold is among the last that were read
JOIN_PATIENCE_S = 2.0  # beyond the TTL: a crashed predecessor's key has run out by then

OwnerEffect = agreement.Adopt | agreement.Settle | agreement.StopAll


def fingerprint(settings: config.Config, *, sites_digest: str) -> dict[str, str]:
    """What all members of a cluster must agree on, from a node's configuration."""
    return placement.fingerprint(
        algorithm=settings.ring.algorithm,
        vnodes=settings.ring.vnodes,
        form=urls.Form.of(settings.sites).described,
        sites=sites_digest,
        view_lease_s=settings.membership.view_lease_s,
        wire_s=settings.membership.wire_s,
        delays=f"{settings.politeness.delay_min_s:g}..{settings.politeness.delay_cap_s:g}",
    )


def settings_of(member: config.Membership) -> agreement.Settings:
    """The numbers of the configuration that the protocol's rules take."""
    return agreement.Settings(
        view_lease_s=member.view_lease_s,
        wire_s=member.wire_s,
        confirm_s=member.confirm_s,
        gather_s=member.gather_s,
        rejoin_s=member.rejoin_s,
        lease_ttl_s=member.lease_ttl_s,
    )


class Session:
    """Register, confirm, agree; `authority()` answers the guard, `on_effect` gets what concerns the sites."""

    def __init__(
        self,
        store: etcd.Etcd,
        cluster: str,
        *,
        node: str,
        value: records.MemberValue,
        settings: agreement.Settings,
        on_effect: Callable[[OwnerEffect, float], None],
        on_proposed: Callable[[records.View, int], None] = lambda _view, _epoch: None,
        on_lost: Callable[[], None] = lambda: None,
        drain_s: float = 30.0,
        log: structlog.typing.FilteringBoundLogger | None = None,
    ) -> None:
        self.state = agreement.State(me=node, value=value, settings=settings)
        self.names = keys.EtcdKeys(cluster)
        self.trouble: str | None = None
        """Why etcd does not answer; None while it does."""
        self.snapshot: agreement.Snapshot | None = None
        self._store = store
        self._on_effect = on_effect
        self._on_proposed = on_proposed
        self._on_lost = on_lost
        self._log = log or structlog.get_logger()
        self._drain_s = drain_s
        self._calls = ThreadPoolExecutor(max_workers=6, thread_name_prefix="etcd")
        self._leases: dict[int, None] = {}
        self._lease = 0
        self._lease_of: dict[int, int] = {}
        """By incarnation."""
        self._seen_views: deque[tuple[records.View, bytes]] = deque(maxlen=VIEWS_KEPT)
        self._arrived: deque[asyncio.Future[agreement.Event]] = deque()
        self._holder_beat: tuple[int, int] | None = None
        self._stop = threading.Event()
        self._wake = asyncio.Event()
        self._fault: errors.CrawlError | None = None

    # -- what the node asks

    def authority(self) -> bool:
        """Rule 3, at this instant."""
        return agreement.has_authority(self.state, clock.boot_s(), time.time())

    def transferring(self) -> bool:
        """May what is in flight go on, at this instant?"""
        return agreement.may_transfer(self.state, clock.boot_s(), time.time())

    @property
    def joined(self) -> bool:
        """This node is in the view it holds."""
        view = self.state.view
        member = view.members.get(self.state.me) if view else None
        return member is not None and member.incarnation == self.state.incarnation

    def feed(self, event: agreement.Event) -> None:
        """Apply one event now; on the event loop only."""
        now_s = clock.boot_s()
        before = self.state
        self.state, effects = views.step(self.state, event, now_s)
        if self.state.phase is not before.phase:
            self._log.info("membership.phase", phase=str(self.state.phase), incarnation=self.state.incarnation)
        for effect in effects:
            if isinstance(effect, OwnerEffect):
                self._on_effect(effect, now_s)
            else:
                self._run(effect)
        if isinstance(event, agreement.Applied | agreement.Stopped | agreement.Drain | agreement.Hint):
            self._wake.set()

    async def run(self) -> bool:
        """Until drained (True), or until a drain took too long (False: what is left is as after a crash).

        Raises ConfigError where this node may not join.
        """
        leave_by_s = float("inf")
        watcher = threading.Thread(
            target=self._watch, args=(asyncio.get_running_loop(),), name="etcd-watch", daemon=True
        )
        watcher.start()
        try:
            while self.state.phase is not agreement.Phase.LEFT:
                self._take_answers()
                if self._fault is not None:
                    raise self._fault
                self.feed(agreement.Tick())
                if self.state.draining and leave_by_s == float("inf"):
                    self._log.info("membership.draining", limit_s=self._drain_s)
                    leave_by_s = clock.boot_s() + self._drain_s
                if clock.boot_s() > leave_by_s:
                    return False
                try:
                    async with asyncio.timeout(TICK_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
            return True
        finally:
            self.state = agreement.without_authority(self.state)
            self._stop.set()
            self._calls.shutdown(wait=False, cancel_futures=True)

    # -- calls

    def _run(self, call: agreement.Call) -> None:
        """Send a call from a thread; its answer comes back as an event on the loop."""
        state = self.state
        future = asyncio.get_running_loop().run_in_executor(self._calls, self._answer, call, state)
        future.add_done_callback(self._answered)

    def _answered(self, future: "asyncio.Future[agreement.Event]") -> None:
        """Leave it to `run`: what a callback raises is only logged, and a fault must end the session."""
        self._arrived.append(future)
        self._wake.set()

    def _take_answers(self) -> None:
        while self._arrived:
            future = self._arrived.popleft()
            if not future.cancelled():
                event = future.result()
                self._examine(event)
                self.feed(event)

    def _examine(self, event: agreement.Event) -> None:
        """What the protocol does not need but the operator does."""
        if isinstance(event, agreement.Looked):
            if event.snapshot.strange and (self.snapshot is None or self.snapshot.strange != event.snapshot.strange):
                self._log.error("etcd.unreadable", keys=event.snapshot.strange)
            self.snapshot = event.snapshot
            reason = views.refused(self.state, event.snapshot)
            if reason:
                self._fault = errors.FingerprintMismatch(
                    f"this node disagrees with the cluster {self.names.cluster!r}: {reason}"
                )
            self._suspect_twin(event.snapshot)

    def _suspect_twin(self, snapshot: agreement.Snapshot) -> None:
        """Our id in another's hands: a crashed predecessor's key runs out, a living process keeps confirming."""
        since, holder = self.state.exists_s, snapshot.members.get(self.state.me)
        if since is None or holder is None:
            self._holder_beat = None
            return
        seen = snapshot.beats.get(holder.incarnation)
        beat = (holder.incarnation, seen.revision if seen else 0)
        first, self._holder_beat = self._holder_beat, self._holder_beat or beat
        patience_s = self.state.settings.lease_ttl_s + JOIN_PATIENCE_S
        if clock.boot_s() > since + patience_s and first is not None and first != beat:
            self._fault = errors.ConfigError(
                f"node id {self.state.me!r} is taken: another process has kept it alive for {patience_s:g} s; "
                "stop that one or choose another --id"
            )

    def _answer(self, call: agreement.Call, state: agreement.State) -> agreement.Event:
        """In a thread: one call, one event."""
        began_s = clock.boot_s()
        try:
            event = self._send(call, state)
        except errors.StoreUnavailable as error:
            if self.trouble is None:
                self._log.warning("etcd.lost", call=call.kind, error=str(error))
                self._on_lost()
            self.trouble = str(error)
            # What is refused at once would be asked again at once, a thousand times a second.
            self._stop.wait(max(0.0, FAILED_S - (clock.boot_s() - began_s)))
            return agreement.Failed(call.kind)
        if self.trouble is not None:
            self._log.info("etcd.back")
        self.trouble = None
        return event

    def _send(self, call: agreement.Call, state: agreement.State) -> agreement.Event:  # noqa: C901, PLR0911 - one return a call
        store, names = self._store, self.names
        match call:
            case agreement.Look():
                return self._look(state)
            case agreement.KeepAlive():
                return (
                    agreement.Done("keepalive")
                    if store.keepalive(self._lease) > 0
                    else agreement.Gone(state.incarnation)
                )
            case agreement.Confirm():
                sent_s, sent_wall_s = clock.boot_s(), time.time()
                done, revision, cluster_id = store.confirm(names, self._mine(state, call.epoch), call)
                if done:
                    return agreement.Confirmed(
                        state.incarnation, call.epoch, sent_s, sent_wall_s, revision, state.revision, cluster_id
                    )
                return agreement.Denied("confirm", state.incarnation, revision, state.revision, cluster_id)
            case agreement.Join():
                return self._join(state)
            case agreement.Propose():
                done, revision, cluster_id = store.propose(names, self._mine(state, call.epoch), call)
                if not done:
                    return agreement.Denied("propose", state.incarnation, revision, state.revision, cluster_id)
                self._on_proposed(call.view, agreement.epoch_of(call.view.generation, revision))
                return agreement.Done("propose")
            case agreement.Resign():
                store.resign(names, state.me, call.incarnation)
                return agreement.Done("resign")
            case agreement.Weigh():
                value = msgspec.structs.replace(state.value, weight=0.0)
                return (
                    agreement.Done("weigh")
                    if store.weigh(names, self._mine(state), value)
                    else agreement.Denied("weigh")
                )
            case agreement.Leave():
                done = store.leave(names, self._mine(state), call.epoch)
                return agreement.Done("leave") if done else agreement.Denied("leave")

    def _look(self, state: agreement.State) -> agreement.Event:
        snapshot = self._ours(self._store.look(self.names), state)
        if snapshot.view is not None:
            self._seen_views.append((snapshot.view, snapshot.view_bytes))
        chain: tuple[tuple[int, records.View], ...] | None = ()
        if snapshot.view is not None and state.epoch and snapshot.epoch > state.epoch:
            chain = self._store.chain(self.names, snapshot.view, state.epoch)
        return agreement.Looked(state.incarnation, state.revision, snapshot, chain)

    def _ours(self, snapshot: agreement.Snapshot, state: agreement.State) -> agreement.Snapshot:
        """Without the key of our id and number, where it is on another's lease: etcd went back, and it is not ours."""
        seen, lease = snapshot.members.get(state.me), self._lease_of.get(state.incarnation)
        if seen is None or lease is None or seen.incarnation != state.incarnation or seen.lease == lease:
            return snapshot
        others = {node: member for node, member in snapshot.members.items() if node != state.me}
        return replace(snapshot, members=others)

    def _mine(self, state: agreement.State, epoch: int = 0) -> agreement.Mine:
        """What a write of ours rests on; the view's bytes are those of the view we hold, whatever was read since."""
        lease = self._lease_of.get(state.incarnation, 0)
        if not epoch or state.view is None:
            return agreement.Mine(state.me, state.incarnation, lease)
        seen = next((raw for view, raw in reversed(tuple(self._seen_views)) if view == state.view), b"")
        return agreement.Mine(state.me, state.incarnation, lease, seen)

    def _join(self, state: agreement.State) -> agreement.Event:
        lease, _ = self._store.grant(round(state.settings.lease_ttl_s))
        self._leases[lease] = None
        created, incarnation, holder = self._store.join(self.names, state.me, state.value, lease)
        if created or holder in self._leases:
            # A join whose answer was lost may have been ours all the same.
            self._lease = self._lease_of[incarnation] = holder
            return agreement.Joined(incarnation)
        self._store.revoke(lease)
        self._leases.pop(lease)
        return agreement.Exists()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """In its own thread: turn etcd's events into hints; lost ones cost a second, nothing else."""
        while not self._stop.is_set():
            try:
                for _ in self._store.hints(self.names, self._stop):
                    loop.call_soon_threadsafe(self.feed, agreement.Hint())
            except RuntimeError:  # the loop is closed: the process ends
                return
            except errors.CrawlError:
                pass
            self._stop.wait(HINT_PAUSE_S)
