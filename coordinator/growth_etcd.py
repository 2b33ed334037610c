"""An etcd of one copy for `simulate growth`: it answers the protocol's calls, and counts calls, bytes and watch events.

Pure. A session may stand for several that do the same at the same moment (`Crowd`): each has a key and a beat of its
own, and each is counted. Sizes are those of the values as they are written, and of the keys' names.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import msgspec

from shared import agreement, keys, records

OVERHEAD_BYTES = 32  # of one key in an answer: revisions, version, lease and their tags
COMPARE_BYTES = 160  # of a conditional write besides the view: three compares, the key and the value of the beat


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who sends a call: its state then, and the nodes that do the same."""

    state: agreement.State
    nodes: tuple[str, ...]
    """Node ids, the session's own first."""
    sent_s: float = 0.0

    @property
    def size(self) -> int:
        return len(self.nodes)


@dataclass
class Etcd:
    """The revision grows by one a write, as etcd's does."""

    names: keys.EtcdKeys
    ttl_s: float
    revision: int = 1
    view: records.View | None = None
    view_revision: int = 0
    members: dict[str, agreement.SeenMember] = field(default_factory=dict)
    beats: dict[int, agreement.SeenBeat] = field(default_factory=dict)
    counts: "Counter[str]" = field(default_factory=Counter)
    alive_s: dict[str, float] = field(default_factory=dict)
    """When each lease was last renewed."""
    touched: dict[str, int] = field(default_factory=dict)
    """Revision of each member key's last put."""
    history: dict[int, records.View] = field(default_factory=dict)
    watched: bool = False
    """Something that watchers are told of was written since this was last looked at."""
    looked_s: float = 0.0
    """When leases were last looked at."""
    view_bytes: int = 0
    key_bytes: int = 0
    """Of all member keys and beats, in one answer."""

    def found(self, fingerprint: dict[str, str]) -> None:
        """The first view, with nobody in it, as `up` puts it."""
        self._put_view(records.View(members={}, fingerprint=fingerprint))

    def expire(self, now_s: float) -> None:
        """End the leases that nobody has renewed; looked at twice a second, as etcd does."""
        if now_s < self.looked_s + 0.5:
            return
        self.looked_s = now_s
        for node in [node for node, alive_s in self.alive_s.items() if now_s > alive_s + self.ttl_s]:
            self.drop(node)

    def drop(self, node: str) -> None:
        """Delete a member key, as a lease's end does."""
        seen = self.members.get(node)
        if seen is None:
            return
        # What was read stays as it was read: snapshots share these tables until they change.
        self.members = {other: member for other, member in self.members.items() if other != node}
        del self.alive_s[node], self.touched[node]
        self.key_bytes -= self._size(self.names.member(node), seen.value)
        self._write(watched=True)

    def answer(self, now_s: float, call: agreement.Call, sent: Crowd) -> agreement.Event:  # noqa: PLR0911 - one a call
        """One call of everyone in the crowd; the answer is that of the first."""
        self.counts[call.kind] += sent.size
        match call:
            case agreement.Look():
                return self._look(sent)
            case agreement.Join():
                return self._join(now_s, sent)
            case agreement.KeepAlive():
                return self._keep_alive(now_s, sent)
            case agreement.Confirm():
                return self._confirm(call, sent)
            case agreement.Propose():
                return self._propose(call, sent)
            case agreement.Resign():
                self._beat(call.incarnation, sent.state.me, 0, resigned=True)
                return agreement.Done("resign")
            case agreement.Weigh():
                return self._weigh(sent)
            case agreement.Leave():
                self.drop(sent.state.me)
                self._beat(call.incarnation, sent.state.me, call.epoch, resigned=True)
                return agreement.Done("leave")

    @property
    def epoch(self) -> int:
        return agreement.epoch_of(self.view.generation, self.view_revision) if self.view else 0

    def _look(self, sent: Crowd) -> agreement.Event:
        self.counts["look bytes"] += (self.key_bytes + self.view_bytes) * sent.size
        self.counts["look keys"] += (len(self.members) + len(self.beats) + 1) * sent.size
        snapshot = agreement.Snapshot(1, self.revision, self.view, self.epoch, self.members, dict(self.beats))
        return agreement.Looked(
            sent.state.incarnation, sent.state.revision, snapshot, self._chain(sent.state.epoch, sent.size)
        )

    def _chain(self, epoch: int, size: int) -> tuple[tuple[int, records.View], ...]:
        """The views after `epoch` and before the newest, oldest first: one read for each."""
        found: list[tuple[int, records.View]] = []
        previous = self.view.previous if self.view and epoch else 0
        while previous > agreement.revision_of(epoch):
            self.counts["history"] += size
            view = self.history[previous]
            found.append((agreement.epoch_of(view.generation, previous), view))
            previous = view.previous
        return tuple(reversed(found))

    def _join(self, now_s: float, sent: Crowd) -> agreement.Event:
        added = {}
        for node in sent.nodes:
            revision = self._write(watched=True)
            added[node] = agreement.SeenMember(revision, revision, sent.state.value)
            self.alive_s[node], self.touched[node] = now_s, revision
            self.key_bytes += self._size(self.names.member(node), sent.state.value)
        self.members = self.members | added
        return agreement.Joined(added[sent.state.me].incarnation)

    def _keep_alive(self, now_s: float, sent: Crowd) -> agreement.Event:
        if sent.state.me not in self.members:
            return agreement.Gone(sent.state.incarnation)
        self.alive_s.update(dict.fromkeys(sent.nodes, now_s))
        return agreement.Done("keepalive")

    def _confirm(self, call: agreement.Confirm, sent: Crowd) -> agreement.Event:
        # The view is compared whole, and the compares of a transaction stand in etcd's log with it.
        self.counts["confirm bytes"] += (self.view_bytes + COMPARE_BYTES) * sent.size
        state = sent.state
        if not self._holds(sent, call.epoch):
            self.counts["denied"] += sent.size
            return agreement.Denied("confirm", state.incarnation, self.revision, state.revision, 1)
        for node in sent.nodes:
            self._beat(self.members[node].incarnation, node, call.applied)
        return agreement.Confirmed(state.incarnation, call.epoch, sent.sent_s, 0.0, self.revision, state.revision, 1)

    def _propose(self, call: agreement.Propose, sent: Crowd) -> agreement.Event:
        state = sent.state
        untouched = max(self.touched.values(), default=0) <= call.revision
        if not (self._holds(sent, call.epoch) and untouched):
            self.counts["denied"] += sent.size
            return agreement.Denied("propose", state.incarnation, self.revision, state.revision, 1)
        self.counts["denied"] += sent.size - 1
        for old in call.drop_beats:
            seen = self.beats.pop(old, None)
            if seen is not None:
                self.key_bytes -= self._size(self.names.beat(old), seen.beat)
        self._put_view(call.view)
        return agreement.Done("propose")

    def _weigh(self, sent: Crowd) -> agreement.Event:
        me = sent.state.me
        seen = self.members.get(me)
        if seen is None:
            return agreement.Denied("weigh")
        light = msgspec.structs.replace(seen.value, weight=0.0)
        self.members = self.members | {me: replace(seen, value=light)}
        self.touched[me] = self._write(watched=True)
        return agreement.Done("weigh")

    def _holds(self, sent: Crowd, epoch: int) -> bool:
        seen = self.members.get(sent.state.me)
        return seen is not None and seen.incarnation == sent.state.incarnation and self.epoch == epoch

    def _put_view(self, view: records.View) -> None:
        self.view, self.view_revision = view, self._write(watched=True)
        self.history[self.view_revision] = view
        self.view_bytes = self._size(self.names.view(), view)

    def _beat(self, incarnation: int, node: str, applied: int, *, resigned: bool = False) -> None:
        beat = records.Beat(node=node, applied=applied, resigned=resigned)
        if incarnation not in self.beats:
            self.key_bytes += self._size(self.names.beat(incarnation), beat)
        self.beats[incarnation] = agreement.SeenBeat(self._write(), beat)

    def _write(self, *, watched: bool = False) -> int:
        self.revision += 1
        if watched:
            self.watched = True
            self.counts["watched writes"] += 1
            self.counts["watch events"] += len(self.members)
        return self.revision

    def _size(self, key: str, value: msgspec.Struct) -> int:
        return len(key) + len(msgspec.json.encode(value)) + OVERHEAD_BYTES
