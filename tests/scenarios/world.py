"""A cluster in virtual time: the project's own `views` and `ownership` against a single-copy etcd.

Messages are late, lost and reordered; links are cut, processes frozen and restarted, leases killed, ids run twice,
clocks run at other rates. What reaches each site is written down, and `judge` finds requests that start too close.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from node import ownership
from shared import agreement, records, views

DELAY_S = 1.0
RHO = 0.001
SITES = tuple(f"s{i}.example" for i in range(6))
FINGERPRINT = {"ring": "xxh3-64/4"}

SETTINGS: dict[str, dict[str, float]] = {
    "calm": {
        "late": 1,
        "revoke": 0.001,
        "freeze": 0.0005,
        "crash": 0.0002,
        "cut": 0.002,
        "override": 0.003,
        "drain": 0.0002,
    },
    "strike": {
        "late": 1,
        "revoke": 0.002,
        "freeze": 0.001,
        "crash": 0.0004,
        "cut": 0.004,
        "override": 0.004,
        "drain": 0.0002,
        "strike": 0.012,
    },
    "churn": {
        "late": 2,
        "revoke": 0.004,
        "freeze": 0.0015,
        "crash": 0.0008,
        "cut": 0.003,
        "override": 0.006,
        "drain": 0.001,
    },
    "frozen": {
        "late": 1,
        "revoke": 0.001,
        "freeze": 0.006,
        "crash": 0.0004,
        "cut": 0.003,
        "override": 0.004,
        "drain": 0.0002,
    },
    "late": {
        "late": 6,
        "revoke": 0.002,
        "freeze": 0.001,
        "crash": 0.0005,
        "cut": 0.003,
        "override": 0.004,
        "drain": 0.0002,
    },
}


class Etcd:
    """Every call is atomic at one instant; the revision grows by one a write."""

    def __init__(self) -> None:
        self.revision = 1
        self.cluster_id = 7
        self.members: dict[str, tuple[int, int, records.MemberValue, float]] = {}
        self.view: records.View | None = None
        self.view_revision = 0
        self.history: dict[int, records.View] = {}
        self.beats: dict[int, agreement.SeenBeat] = {}
        self.overrides: dict[str, str] = {}

    def incarnation(self, node: str) -> int:
        return self.members[node][0] if node in self.members else 0

    def snapshot(self) -> agreement.Snapshot:
        epoch = agreement.epoch_of(self.view.generation, self.view_revision) if self.view else 0
        members = {node: agreement.SeenMember(inc, inc, value) for node, (inc, _, value, _) in self.members.items()}
        return agreement.Snapshot(
            self.cluster_id, self.revision, self.view, epoch, members, dict(self.beats), dict(self.overrides), {}
        )

    def write(self) -> int:
        self.revision += 1
        return self.revision

    def drop(self, node: str) -> None:
        if self.members.pop(node, None):
            self.write()


@dataclass
class Contact:
    at: float
    site: str
    node: str
    tenure: int


@dataclass
class Process:
    """One process of an id; its clock runs at its own rate."""

    name: str
    rate: float
    state: agreement.State
    owner: ownership.Ownership
    frozen_until: float = 0.0
    down_until: float = 0.0
    inbox: list[tuple[float, Any]] = field(default_factory=list)
    cut: dict[str, float] = field(default_factory=dict)
    visits: dict[str, tuple[float, ownership.Held]] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    leaving: list[tuple[float, ownership.Held]] = field(default_factory=list)
    generation: int = 0
    """Of the process: answers to one that was restarted are lost."""


class World:
    """One seeded run."""

    def __init__(self, seed: int, setting: dict[str, float], *, twist: Callable[["World"], None] | None = None) -> None:
        self.random = random.Random(seed)
        self.p = setting
        self.etcd = Etcd()
        self.t = 0.0
        self.wire: list[tuple[float, Process, int, agreement.Call, float, agreement.State]] = []
        self.contacts: list[Contact] = []
        self.claims: dict[str, tuple[int, str]] = {}
        self.settings = agreement.Settings()
        names = ("n0", "n1", "n2", "n3", "n0", "n1")
        self.nodes = [self.boot(Process(name, 1 + self.random.uniform(-RHO, RHO), None, None)) for name in names]  # type: ignore[arg-type]
        for process in self.nodes[4:]:
            process.down_until = self.random.uniform(5, 60)
        self.strikes: list[tuple[float, str, str]] = []
        self.remembers = False
        """The store never forgets; else one claim in twenty finds an empty record."""
        if twist:
            twist(self)

    def boot(self, process: Process) -> Process:
        value = records.MemberValue(weight=1.0, address="", fingerprint=FINGERPRINT)
        process.state = agreement.State(me=process.name, value=value, settings=self.settings)
        process.owner = ownership.Ownership(process.name, silence_s=self.settings.silence_s, delay_min_s=DELAY_S)
        process.inbox, process.visits, process.ready, process.leaving = [], {}, {}, []
        process.generation += 1
        return process

    def latency(self) -> float:
        return self.random.expovariate(8) if self.random.random() < 0.9 else self.random.uniform(0, self.p["late"])

    # -- the run

    def run(self, until_s: float) -> list[tuple[Contact, Contact]]:
        while self.t < until_s:
            self.t += self.random.uniform(0.02, 0.14)
            self.expire()
            self.trouble()
            self.deliver()
            for process in self.nodes:
                if process.frozen_until <= self.t and process.down_until <= self.t:
                    self.turn(process)
        return judge(self.contacts)

    def expire(self) -> None:
        for node, (_, _, _, alive) in list(self.etcd.members.items()):
            if self.t - alive > self.settings.lease_ttl_s + 0.3:
                self.etcd.drop(node)

    def trouble(self) -> None:
        chance = self.random.random
        if chance() < self.p["revoke"] and self.etcd.members:
            self.etcd.drop(self.random.choice(sorted(self.etcd.members)))
        if chance() < self.p["override"]:
            self.etcd.overrides[self.random.choice(SITES)] = self.random.choice(self.nodes).name
            self.etcd.write()
        if chance() < self.p.get("strike", 0) and self.contacts:
            self.strike()
        for process in self.nodes:
            if process.down_until > self.t:
                continue
            if chance() < self.p["cut"]:
                until = self.t + self.random.uniform(1, 16)
                kinds = self.random.choice(
                    (("look", "confirm"), ("look",), ("confirm",), ("keepalive",), ("look", "confirm", "keepalive"))
                )
                process.cut.update(dict.fromkeys(kinds, until))
            if chance() < self.p["freeze"]:
                process.frozen_until = self.t + (
                    self.random.uniform(0, 1) if chance() < 0.5 else self.random.uniform(1, 18)
                )
            if chance() < self.p["crash"]:
                self.boot(process)
                process.down_until = self.t + self.random.uniform(0, 4)
            if chance() < self.p["drain"]:
                self.feed(process, agreement.Drain())

    def strike(self) -> None:
        """The last visitor loses etcd just as its site moves away, and the site comes back later."""
        last = self.contacts[-1]
        others = sorted(set(self.etcd.members) - {last.node})
        for process in self.nodes:
            if process.name == last.node:
                process.cut.update(
                    {
                        kind: self.t + self.random.uniform(2, 13)
                        for kind in ("look", "confirm", "keepalive")[: self.random.choice((2, 3))]
                    }
                )
        if others:
            self.etcd.overrides[last.site] = self.random.choice(others)
            self.etcd.write()
            self.strikes.append((self.t + self.random.uniform(0.5, 14), last.site, last.node))
        for at, site, node in [strike for strike in self.strikes if strike[0] <= self.t]:
            self.strikes.remove((at, site, node))
            self.etcd.overrides[site] = node
            self.etcd.write()

    def deliver(self) -> None:
        for message in [m for m in self.wire if m[0] <= self.t]:
            self.wire.remove(message)
            _, process, generation, call, sent_s, state = message
            event = self.answer(process, call, sent_s, state)
            if self.random.random() >= 0.95:
                event = agreement.Failed(call.kind)
            if generation == process.generation:
                process.inbox.append((self.t + self.latency(), event))

    def turn(self, process: Process) -> None:
        now_s = self.t * process.rate
        due = [event for at, event in process.inbox if at <= self.t]
        process.inbox = [item for item in process.inbox if item[0] > self.t]
        for event in due:
            if isinstance(event, Claimed):
                if event.record is None:
                    self.feed(process, agreement.Outdated(self.claims[event.site][0]))
                self.apply(process, process.owner.claimed(now_s, event.site, event.epoch, event.record))
            else:
                self.feed(process, event)
        if process.state.phase is agreement.Phase.LEFT:
            self.boot(process)
            process.down_until = self.t + self.random.uniform(1, 10)
            return
        self.feed(process, agreement.Tick())
        self.apply(process, process.owner.ticked(now_s))
        self.finish(process, now_s)
        self.visit(process, now_s)

    # -- the node's shell

    def feed(self, process: Process, event: agreement.Event) -> None:
        now_s = self.t * process.rate
        process.state, effects = views.step(process.state, event, now_s)
        views.check(process.state)
        for effect in effects:
            match effect:
                case agreement.Adopt():
                    self.apply(process, process.owner.adopted(now_s, effect))
                case agreement.Settle():
                    self.apply(process, process.owner.settled(now_s, effect))
                case agreement.StopAll():
                    self.apply(process, process.owner.stop(effect.incarnation))
                case _:
                    if process.cut.get(effect.kind, 0) > self.t:
                        process.inbox.append((self.t + 0.8, agreement.Failed(effect.kind)))
                    else:
                        self.wire.append(
                            (self.t + self.latency(), process, process.generation, effect, now_s, process.state)
                        )

    def apply(self, process: Process, effects: list[ownership.Effect]) -> None:
        now_s = self.t * process.rate
        for effect in effects:
            match effect:
                case ownership.ReadArcs():
                    self.apply(process, process.owner.found(SITES))
                case ownership.Claim():
                    for site in effect.sites:
                        self.claim(process, site)
                case ownership.Ready():
                    process.ready[effect.site] = effect.at_s
                case ownership.Abandon():
                    for site in effect.sites:
                        ends, held = process.visits.pop(site)
                        process.leaving.append((min(ends, now_s + 5.0), held))
                case ownership.Acknowledge():
                    self.feed(process, agreement.Applied(effect.epoch))
                case ownership.Stopped():
                    self.feed(process, agreement.Stopped(effect.incarnation))

    def claim(self, process: Process, site: str) -> None:
        """The store's part: newest tenure wins; it may also have forgotten everything."""
        epoch = process.owner.claim_epoch(site)
        if epoch is None:
            return
        stored, owner = self.claims.get(site, (0, None))
        if not self.remembers and self.random.random() < 0.05:
            stored, owner = 0, None
        record = None
        if epoch >= stored:
            self.claims[site] = (epoch, process.name)
            record = record_of(site, owner, stored)
        process.inbox.append((self.t + self.latency(), Claimed(site, epoch, record)))

    def visit(self, process: Process, now_s: float) -> None:
        for site, at_s in sorted(process.ready.items()):
            if now_s < at_s:
                continue
            del process.ready[site]
            held = process.owner.start(now_s, site)
            if held is None:
                continue
            wait = self.random.random() < 0.1
            if not process.owner.owns(site, held.tenure) or not agreement.has_authority(process.state, now_s, now_s):
                self.apply(process, process.owner.finished(now_s, held, answer_of(held)))
                process.ready.setdefault(site, now_s)
                continue
            # What the guard let through may still leave the machine G later, whatever has happened to the process.
            tail = self.random.uniform(0, self.settings.wire_s) if self.random.random() < 0.3 else 0.0
            self.contacts.append(Contact(self.t + tail, site, process.name, held.tenure))
            duration = self.random.uniform(0, 3.0) if wait else 0.02
            process.visits[site] = ((self.t + tail) * process.rate + duration, held)

    def finish(self, process: Process, now_s: float) -> None:
        for site, (ends, held) in list(process.visits.items()):
            if now_s >= ends:
                del process.visits[site]
                held.ready_s = max(held.ready_s, now_s + DELAY_S * agreement.SLACK)
                self.apply(process, process.owner.finished(now_s, held, answer_of(held)))
        for ends, held in [item for item in process.leaving if now_s >= item[0]]:
            process.leaving.remove((ends, held))
            self.apply(process, process.owner.finished(now_s, held, None))

    # -- etcd's answers

    def answer(self, process: Process, call: agreement.Call, sent_s: float, state: agreement.State) -> Any:  # noqa: PLR0911 - one answer a call
        etcd, me, incarnation = self.etcd, process.name, state.incarnation
        mine = incarnation != 0 and etcd.incarnation(me) == incarnation
        at_epoch = (
            etcd.view_revision == agreement.revision_of(call.epoch)
            if isinstance(call, agreement.Confirm | agreement.Propose)
            else True
        )
        match call:
            case agreement.Look():
                chain = self.chain(state.epoch)
                return agreement.Looked(incarnation, state.revision, etcd.snapshot(), chain)
            case agreement.Join():
                if etcd.incarnation(me):
                    return agreement.Exists()
                revision = etcd.write()
                etcd.members[me] = (revision, revision, state.value, self.t)
                return agreement.Joined(revision)
            case agreement.KeepAlive():
                if not mine:
                    return agreement.Gone(incarnation)
                inc, mod, value, _ = etcd.members[me]
                etcd.members[me] = (inc, mod, value, self.t)
                return agreement.Done("keepalive")
            case agreement.Confirm():
                if not (mine and at_epoch):
                    return agreement.Denied("confirm", incarnation, etcd.revision, state.revision, etcd.cluster_id)
                etcd.beats[incarnation] = agreement.SeenBeat(etcd.write(), records.Beat(node=me, applied=call.applied))
                return agreement.Confirmed(incarnation, call.epoch, sent_s, sent_s)
            case agreement.Propose():
                untouched = all(mod <= call.revision for _, mod, _, _ in etcd.members.values())
                if not (mine and at_epoch and untouched):
                    return agreement.Denied("propose", incarnation, etcd.revision, state.revision, etcd.cluster_id)
                etcd.view, etcd.view_revision = call.view, etcd.write()
                etcd.history[etcd.view_revision] = call.view
                for old in call.drop_beats:
                    etcd.beats.pop(old, None)
                return agreement.Done("propose")
            case agreement.Resign():
                if call.incarnation in etcd.beats:
                    etcd.beats[call.incarnation] = agreement.SeenBeat(
                        etcd.write(), records.Beat(node=me, applied=0, resigned=True)
                    )
                return agreement.Done("resign")
            case agreement.Weigh():
                if not mine:
                    return agreement.Denied("weigh")
                inc, _, value, alive = etcd.members[me]
                etcd.members[me] = (
                    inc,
                    etcd.write(),
                    records.MemberValue(weight=0.0, address="", fingerprint=value.fingerprint),
                    alive,
                )
                return agreement.Done("weigh")
            case agreement.Leave():
                if not mine:
                    return agreement.Denied("leave")
                etcd.drop(me)
                etcd.beats[call.incarnation] = agreement.SeenBeat(
                    etcd.write(), records.Beat(node=me, applied=call.epoch, resigned=True)
                )
                return agreement.Done("leave")

    def chain(self, epoch: int) -> tuple[tuple[int, records.View], ...] | None:
        view = self.etcd.view
        if view is None or not epoch or self.random.random() < 0.1:
            return None if view is not None and epoch else ()
        found: list[tuple[int, records.View]] = []
        previous = view.previous
        while previous > agreement.revision_of(epoch):
            older = self.etcd.history[previous]
            found.append((agreement.epoch_of(older.generation, previous), older))
            previous = older.previous
        return tuple(reversed(found))


@dataclass
class Claimed:
    site: str
    epoch: int
    record: records.SiteRecord | None


def record_of(site: str, owner: str | None, epoch: int) -> records.SiteRecord:
    """A record with one URL to fetch, and no due of its own: politeness must not lean on the store."""
    return records.SiteRecord(
        site=site, owner=owner, owner_epoch=epoch, n=0, pending=1, later=0, later_in_s=None,
        head=(records.QueuedUrl(url=f"http://{site}/", priority=5),), due_in_s=0.0, due_ms=0, due_term="", delay_s=DELAY_S,
        delay_term="minimum", backoff=0, last_fetch_ms=None, pages=0, seen=1, validators=0, checks=0, changes=0, observed_s=0.0, answered_ms=0,
    )  # fmt: skip


def answer_of(held: ownership.Held) -> records.Committed:
    return records.Committed(record=record_of(held.site, None, held.tenure))


def judge(contacts: list[Contact]) -> list[tuple[Contact, Contact]]:
    """Pairs of contacts of one site that start closer than its delay; P1 as its web server sees it."""
    by_site: dict[str, list[Contact]] = {}
    for contact in sorted(contacts, key=lambda contact: contact.at):
        by_site.setdefault(contact.site, []).append(contact)
    return [(a, b) for row in by_site.values() for a, b in itertools.pairwise(row) if b.at - a.at < DELAY_S - 1e-6]


def moves(contacts: list[Contact]) -> int:
    """How often a site was visited by another tenure than before."""
    last: dict[str, int] = {}
    count = 0
    for contact in sorted(contacts, key=lambda contact: contact.at):
        count += last.get(contact.site, contact.tenure) != contact.tenure
        last[contact.site] = contact.tenure
    return count
