"""A single-copy etcd: every call is atomic at one instant; it can lose its history, and be put back to an old state."""

import collections
from dataclasses import dataclass, field
from typing import Any

from shared import agreement, records

SERVED = 64  # reads kept, so that a paused leader can answer with an old one


@dataclass
class Etcd:
    """The revision grows by one a write. Members: incarnation, revision of the last put, value, last keep-alive."""

    revision: int = 1
    cluster_id: int = 7
    members: dict[str, tuple[int, int, records.MemberValue, float]] = field(default_factory=dict)
    view: records.View | None = None
    view_revision: int = 0
    history: dict[int, records.View] = field(default_factory=dict)
    compacted: int = 0
    beats: dict[int, agreement.SeenBeat] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    held: dict[tuple[str, int], int] = field(default_factory=dict)
    """The lease of each incarnation."""
    leases: int = 0
    """Granted so far: unlike a revision, a lease's number never comes twice."""
    exact: bool = True
    """Writes ask for the lease of the member key and for the view itself, and not for their revisions alone."""
    changed: bool = False
    """Something that watchers are told of was written since this was last looked at."""
    served: collections.deque[tuple[float, agreement.Snapshot]] = field(
        default_factory=lambda: collections.deque(maxlen=SERVED)
    )

    def incarnation(self, node: str) -> int:
        return self.members[node][0] if node in self.members else 0

    def snapshot(self, t: float) -> agreement.Snapshot:
        epoch = agreement.epoch_of(self.view.generation, self.view_revision) if self.view else 0
        members = {
            node: agreement.SeenMember(inc, self.held[node, inc], value)
            for node, (inc, _, value, _) in self.members.items()
        }
        read = agreement.Snapshot(
            self.cluster_id, self.revision, self.view, epoch, members, dict(self.beats), dict(self.overrides), {}
        )
        self.served.append((t, read))
        return read

    def old(self, t: float, age_s: float) -> agreement.Snapshot:
        """The newest read that is at least so old; the oldest kept if none is."""
        self.snapshot(t)
        return next((read for at, read in reversed(self.served) if at <= t - age_s), self.served[0][1])

    def write(self, *, watched: bool = False) -> int:
        self.revision += 1
        self.changed = self.changed or watched
        return self.revision

    def place(self, site: str, node: str) -> None:
        self.overrides[site] = node
        self.write(watched=True)

    def drop(self, node: str) -> None:
        if self.members.pop(node, None):
            self.write(watched=True)

    def expire(self, t: float, ttl_s: float) -> None:
        for node, (_, _, _, alive_s) in list(self.members.items()):
            if t - alive_s > ttl_s:
                self.drop(node)

    def renew_leases(self, t: float) -> None:
        """A new leader gives every lease its whole time again."""
        self.members = {node: (inc, mod, value, t) for node, (inc, mod, value, _) in self.members.items()}

    def compact(self) -> None:
        self.compacted = self.revision

    def copy(self) -> "Etcd":
        return Etcd(
            self.revision, self.cluster_id, dict(self.members), self.view, self.view_revision, dict(self.history),
            self.compacted, dict(self.beats), dict(self.overrides), dict(self.held), self.leases, self.exact, changed=True,
        )  # fmt: skip

    def chain(self, view: records.View | None, epoch: int) -> tuple[tuple[int, records.View], ...] | None:
        """The views after `epoch` and before `view`; None where one of them is unreadable."""
        found: list[tuple[int, records.View]] = []
        if view is None or not epoch:
            return ()
        previous = view.previous
        while previous > agreement.revision_of(epoch):
            older = self.history.get(previous)
            if older is None or previous < self.compacted:
                return None
            found.append((agreement.epoch_of(older.generation, previous), older))
            previous = older.previous
        return tuple(reversed(found))

    def at(self, epoch: int, view: records.View | None) -> bool:
        return self.view_revision == agreement.revision_of(epoch) and (not self.exact or self.view == view)

    def mine(self, sent: "Sent") -> bool:
        me, incarnation = sent.state.me, sent.state.incarnation
        lease = self.held.get((me, incarnation))
        return incarnation != 0 and self.incarnation(me) == incarnation and (not self.exact or lease == sent.lease)

    # -- calls

    def answer(self, t: float, call: agreement.Call, sent: "Sent") -> Any:  # noqa: PLR0911 - one answer a call
        me, incarnation, mine = sent.state.me, sent.state.incarnation, self.mine(sent)
        match call:
            case agreement.Look():
                return self._look(t, sent)
            case agreement.Join():
                return self._join(t, me, sent)
            case agreement.KeepAlive():
                return self._keep_alive(t, me, incarnation, mine=mine, stale=sent.stale_s > 0)
            case agreement.Confirm():
                return self._confirm(me, call, sent, mine=mine)
            case agreement.Propose():
                return self._propose(call, sent, mine=mine)
            case agreement.Resign():
                if call.incarnation in self.beats:
                    self.beats[call.incarnation] = _beat(self.write(), me, 0, resigned=True)
                return agreement.Done("resign")
            case agreement.Weigh():
                if not mine:
                    return agreement.Denied("weigh")
                inc, _, value, alive_s = self.members[me]
                light = records.MemberValue(weight=0.0, address="", fingerprint=value.fingerprint)
                self.members[me] = (inc, self.write(watched=True), light, alive_s)
                return agreement.Done("weigh")
            case agreement.Leave():
                if not mine:
                    return agreement.Denied("leave")
                self.drop(me)
                self.beats[call.incarnation] = _beat(self.write(), me, call.epoch, resigned=True)
                return agreement.Done("leave")

    def _look(self, t: float, sent: "Sent") -> agreement.Looked:
        read = self.old(t, sent.stale_s) if sent.stale_s else self.snapshot(t)
        chain = self.chain(read.view, sent.state.epoch) if not sent.blind or read.epoch <= sent.state.epoch else None
        return agreement.Looked(sent.state.incarnation, sent.state.revision, read, chain)

    def _join(self, t: float, me: str, sent: "Sent") -> agreement.Joined | agreement.Exists:
        if self.incarnation(me):
            return agreement.Exists()
        revision = self.write(watched=True)
        self.members[me] = (revision, revision, sent.state.value, t)
        self.leases += 1
        self.held[me, revision] = self.leases
        return agreement.Joined(revision)

    def _keep_alive(self, t: float, me: str, incarnation: int, *, mine: bool, stale: bool) -> Any:
        if mine:
            inc, mod, value, _ = self.members[me]
            self.members[me] = (inc, mod, value, t)
        elif not stale:  # a leader that was paused acknowledges one that is long gone
            return agreement.Gone(incarnation)
        return agreement.Done("keepalive")

    def _confirm(self, me: str, call: agreement.Confirm, sent: "Sent", *, mine: bool) -> Any:
        state = sent.state
        if not (mine and self.at(call.epoch, state.view)):
            return agreement.Denied("confirm", state.incarnation, self.revision, state.revision, self.cluster_id)
        self.beats[state.incarnation] = _beat(self.write(), me, call.applied)
        return agreement.Confirmed(
            state.incarnation, call.epoch, sent.sent_s, sent.sent_wall_s, self.revision, state.revision, self.cluster_id
        )

    def _propose(self, call: agreement.Propose, sent: "Sent", *, mine: bool) -> Any:
        state = sent.state
        untouched = all(mod <= call.revision for _, mod, _, _ in self.members.values())
        if not (mine and self.at(call.epoch, state.view) and untouched):
            return agreement.Denied("propose", state.incarnation, self.revision, state.revision, self.cluster_id)
        self.view, self.view_revision = call.view, self.write(watched=True)
        self.history[self.view_revision] = call.view
        for old in call.drop_beats:
            self.beats.pop(old, None)
        return agreement.Done("propose")


@dataclass(frozen=True, slots=True)
class Sent:
    """How a call was sent: by whom (its state then), when on its own clocks, and what befalls it."""

    state: agreement.State
    sent_s: float
    sent_wall_s: float
    lease: int = 0
    stale_s: float = 0.0
    blind: bool = False


def _beat(revision: int, node: str, applied: int, *, resigned: bool = False) -> agreement.SeenBeat:
    return agreement.SeenBeat(revision, records.Beat(node=node, applied=applied, resigned=resigned))
