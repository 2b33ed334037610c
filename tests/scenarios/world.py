"""A cluster in virtual time: the project's own `views` and `ownership`, run by a plan of moves against a model of etcd.

Deterministic: what is not in the plan comes from `chaos`, which writes down every move that it makes (`played`), so that
the same run can be had again from that list alone, without any chance in it.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

import xxhash

from node import ownership
from shared import agreement, records, views
from tests.scenarios import judge, model_etcd, moves, telling
from tests.scenarios.judge import DELAY_S
from tests.scenarios.moves import Move
from tests.scenarios.processes import Claimed, Message, Process

FINGERPRINT = {"ring": "xxh3-64/4"}
CALL_S = 0.8  # a call that is not answered fails so much later, as in `shared.etcd`
STEP_S = 0.08
LATENCY_S = 0.04
STOP_S = 5.0  # an abandoned visit is reset so much later
CHECKPOINT_S = 1.0
ROUND_S = 0.5  # between two looks through the index, where not all sites are held


class Chaos(Protocol):
    """Where moves come from that are not in the plan."""

    def trouble(self, world: "World") -> list[Move]: ...
    def message(self, world: "World", slot: int, call: str, site: str) -> list[Move]: ...


class World:
    """One run of one plan."""

    def __init__(self, plan: moves.Plan, *, chaos: Chaos | None = None, telling: bool = False) -> None:
        self.plan = plan
        self.chaos = chaos
        self.etcd = model_etcd.Etcd()
        self.settings = agreement.Settings()
        self.t = 0.0
        self.steps = 0
        self.down_until = 0.0
        self.wire: list[Message] = []
        self.contacts: list[judge.Contact] = []
        self.violation: judge.Pair | None = None
        self.claims: dict[str, tuple[int, str]] = {}
        self.played: list[Move] = []
        self.telling = telling
        self.told: list[tuple[float, str, str]] = []
        self._by_site: dict[str, list[judge.Contact]] = defaultdict(list)
        self._coming: list[Move] = []
        self._fates: dict[tuple[int, str, str], list[Move]] = defaultdict(list)
        self.add(plan.moves)
        self._checkpoints: list[tuple[float, model_etcd.Etcd]] | None = None
        if any(move.what == "restore" for move in plan.moves):
            self.keep_checkpoints()
        self.nodes = [self._process(slot) for slot in range(len(plan.actors))]

    def _process(self, slot: int) -> Process:
        actor = self.plan.actors[slot]
        blank: Any = None
        process = Process(slot, actor.name, self.plan.label(slot), actor.rate, actor.starts_s, blank, blank)
        return self.boot(process)

    def boot(self, process: Process) -> Process:
        value = records.MemberValue(weight=1.0, address="", fingerprint=FINGERPRINT)
        process.state = agreement.State(me=process.name, value=value, settings=self.settings)
        held_max, share = self.plan.held_max, moves.SHARE_VISITS if self.plan.held_max else 1_000
        process.owner = ownership.Ownership(
            process.name,
            silence_s=self.settings.silence_s,
            delay_min_s=DELAY_S,
            held_max=held_max or 1_000,
            share_visits=share,
        )
        process.round_s = 0.0
        process.inbox, process.visits, process.ready, process.leaving, process.why = [], {}, {}, [], {}
        process.generation += 1
        return process

    def add(self, more: Sequence[Move]) -> None:
        """Moves to come, each at its moment."""
        for move in sorted(more, key=lambda move: move.at_s):
            (self._coming if move.what in moves.WORLD else self._fates[move.key]).append(move)
        self._coming.sort(key=lambda move: move.at_s)

    def keep_checkpoints(self) -> None:
        """From now on etcd can be put back to an earlier state."""
        self._checkpoints = self._checkpoints or []

    # -- the run

    def run(self, until_s: float | None = None) -> judge.Pair | None:
        """Until the plan's end, or the first pair of requests that came too close."""
        until_s = self.plan.until_s if until_s is None else until_s
        while self.t < until_s and self.violation is None:
            self.steps += 1
            self.t += STEP_S if self.plan.weather is None else 0.02 + 0.12 * self.luck("step", 0)
            self._trouble()
            if self.t >= self.down_until:
                self.etcd.expire(self.t, self.settings.lease_ttl_s + 0.3)
            self._deliver()
            for process in self.nodes:
                if process.frozen_until <= self.t and process.down_until <= self.t:
                    self._turn(process)
        return self.violation

    def luck(self, what: str, slot: int) -> float:
        """In [0, 1); the same at the same step for the same thing, whatever happened before."""
        return xxhash.xxh3_64_intdigest(f"{self.steps}/{slot}/{what}".encode(), seed=self.plan.weather or 0) / 2**64

    def latency(self, what: str, slot: int) -> float:
        return LATENCY_S if self.plan.weather is None else -math.log(1 - self.luck(what, slot)) / 8

    def say(self, who: str, what: str) -> None:
        if self.telling:
            self.told.append((self.t, who, what))

    # -- moves

    def _trouble(self) -> None:
        if self._checkpoints is not None and (
            not self._checkpoints or self.t >= self._checkpoints[-1][0] + CHECKPOINT_S
        ):
            self._checkpoints = [*self._checkpoints[-60:], (self.t, self.etcd.copy())]
        while self._coming and self._coming[0].at_s <= self.t:
            self._play(self._coming.pop(0))
        if self.chaos is not None:
            for move in self.chaos.trouble(self):
                self.played.append(move)
                self._play(move)

    def _play(self, move: Move) -> None:
        if move.what in moves.MESSAGE:
            self._fates[move.key].append(move)
            return
        self.say("", self.plan.tell(move))
        until_s = self.t + move.seconds
        process = self.nodes[move.who] if move.who >= 0 else None
        if process is not None and process.down_until > self.t:
            return  # nothing befalls a process that is not there
        match move.what, process:
            case "cut", Process():
                process.cut[move.call] = until_s
            case "freeze", Process():
                process.frozen_until = max(process.frozen_until, until_s)
            case "suspend", Process():
                process.frozen_until = max(process.frozen_until, until_s)
                process.slept_s += move.seconds
            case "crash", Process():
                self.boot(process)
                process.down_until = until_s
            case "drain", Process():
                self.feed(process, agreement.Drain())
            case "wall", Process():
                process.stepped_s += move.seconds
            case "hint", Process():
                self.feed(process, agreement.Hint())
            case "revoke", _:
                self.etcd.drop(move.node)
            case "override", _:
                self.etcd.place(move.site, move.node)
            case "compact", _:
                self.etcd.compact()
            case "down", _:
                self.down_until = max(self.down_until, until_s)
                self.etcd.renew_leases(until_s)
            case "restore", _:
                self._restore(move)

    def _restore(self, move: Move) -> None:
        """`call`: same = an old data folder, new = a snapshot restored into a new cluster, empty = nothing left."""
        assert self._checkpoints is not None
        kept = [etcd for at, etcd in self._checkpoints if at <= self.t - move.seconds] or [self._checkpoints[0][1]]
        back = model_etcd.Etcd() if move.call == "empty" else kept[-1].copy()
        back.cluster_id = self.etcd.cluster_id + (move.call != "same")
        back.leases, back.exact = self.etcd.leases, self.etcd.exact
        back.renew_leases(max(self.t, self.down_until))
        self.etcd = back
        self._checkpoints = []

    def fates(self, slot: int, call: str, site: str = "") -> dict[str, float]:
        """What befalls this message."""
        found = {}
        planned = self._fates.get((slot, call, site))
        while planned and planned[0].at_s <= self.t:
            move = planned.pop(0)
            found[move.what] = move.seconds
            self.say("", self.plan.tell(move))
        if self.chaos is not None:
            for move in self.chaos.message(self, slot, call, site):
                self.played.append(move)
                found[move.what] = move.seconds
                self.say("", self.plan.tell(move))
        return found

    # -- messages

    def _send(self, process: Process, call: agreement.Call) -> None:
        fate = self.fates(process.slot, call.kind)
        if process.cut.get(call.kind, 0) > self.t or "lost" in fate:
            process.inbox.append((self.t + CALL_S, agreement.Failed(call.kind)))
            return
        sent = model_etcd.Sent(
            process.state,
            process.boot_s(self.t),
            process.wall_s(self.t),
            process.lease,
            fate.get("stale", 0.0),
            "blind" in fate,
        )
        arrives_s = self.t + (fate["late"] if "late" in fate else self.latency(call.kind, process.slot))
        answer_s = fate.get("late answer", self.latency(call.kind + " answer", process.slot))
        answered = "no answer" not in fate
        if not answered:
            process.inbox.append((max(self.t + CALL_S, arrives_s), agreement.Failed(call.kind)))
        self.wire.append(Message(arrives_s, process, process.generation, call, sent, answer_s, answered))
        if "twice" in fate:
            again_s = arrives_s + fate["twice"]
            self.wire.append(Message(again_s, process, process.generation, call, sent, 0.0, answered=False))

    def _deliver(self) -> None:
        arrived = [message for message in self.wire if message.at <= self.t]
        if arrived:
            self.wire = [message for message in self.wire if message.at > self.t]
        for message in sorted(arrived, key=lambda message: message.at):
            process, kind = message.process, message.call.kind
            event: Any = agreement.Failed(kind)
            if self.t >= self.down_until:
                event = self.etcd.answer(self.t, message.call, message.sent)
                if isinstance(event, agreement.Joined) and message.generation == process.generation:
                    process.lease = self.etcd.leases
                self._tell_answer(process, message.call, event)
            if message.answered and message.generation == process.generation:
                process.inbox.append((self.t + message.answer_s, event))
        if self.etcd.changed and self.t >= self.down_until:
            self.etcd.changed = False
            for process in self.nodes:
                heard = self.plan.weather is None or self.luck("heard", process.slot) < 0.7
                if heard and process.cut.get("watch", 0) <= self.t and process.down_until <= self.t:
                    process.inbox.append((self.t + self.latency("watch", process.slot), agreement.Hint()))

    def _tell_answer(self, process: Process, call: agreement.Call, event: Any) -> None:
        text = telling.answered(call, event, self.etcd.revision) if self.telling else None
        if text and process.last_told != text:  # an ack is in every beat that follows it
            process.last_told = text
            self.say(process.label, text)

    # -- one process

    def _turn(self, process: Process) -> None:
        now_s = process.boot_s(self.t)
        due = [event for at, event in process.inbox if at <= self.t]
        if due:
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
            process.down_until = self.t + 1 + 9 * self.luck("left", process.slot)
            return
        self.feed(process, agreement.Tick())
        self.apply(process, process.owner.ticked(now_s))
        if self.plan.held_max and now_s >= process.round_s:
            process.round_s = now_s + ROUND_S
            self._look_round(process)
        self._finish(process, now_s)
        self._visit(process, now_s)

    def feed(self, process: Process, event: agreement.Event) -> None:
        now_s = process.boot_s(self.t)
        process.state, effects = views.step(process.state, event, now_s)
        views.check(process.state)
        for effect in effects:
            match effect:
                case agreement.Adopt():
                    epoch = agreement.revision_of(effect.views[-1][0])
                    self.say(
                        process.label, f"adopts view {epoch}" + ("" if effect.whole else ", some before it unknown")
                    )
                    self.apply(process, process.owner.adopted(now_s, effect))
                case agreement.Settle():
                    self.apply(process, process.owner.settled(now_s, effect))
                case agreement.StopAll():
                    self.say(process.label, f"stops everything: {effect.reason}")
                    self.apply(process, process.owner.stop(effect.incarnation))
                case _:
                    self._send(process, effect)

    def apply(self, process: Process, effects: Sequence[ownership.Effect]) -> None:
        now_s = process.boot_s(self.t)
        for effect in effects:
            match effect:
                case ownership.ReadArcs():
                    self.apply(process, process.owner.found(self.plan.sites))
                case ownership.Claim():
                    for site in effect.sites:
                        self._claim(process, site)
                case ownership.Ready():
                    process.ready[effect.site] = effect.at_s
                case ownership.Released():
                    for site in effect.sites:
                        process.ready.pop(site, None)
                case ownership.Abandon():
                    for site in effect.sites:
                        ends, held = process.visits.pop(site)
                        process.leaving.append((min(ends, now_s + STOP_S), held))
                case ownership.Acknowledge():
                    self.feed(process, agreement.Applied(effect.epoch))
                case ownership.Stopped():
                    self.feed(process, agreement.Stopped(effect.incarnation))

    def _look_round(self, process: Process) -> None:
        """As `claiming` does: those that are not held are found, each round beginning with another."""
        at = int(process.round_s / ROUND_S) % len(self.plan.sites)
        around = (*self.plan.sites[at:], *self.plan.sites[:at])
        self.apply(process, process.owner.found([site for site in around if site not in process.owner.sites]))

    def _claim(self, process: Process, site: str) -> None:
        """The store's part: newest tenure wins; it may also have forgotten everything."""
        epoch = process.owner.claim_epoch(site)
        if epoch is None:
            return
        fate = self.fates(process.slot, "claim", site)
        stored, owner = self.claims.get(site, (0, None))
        if "amnesia" in fate:
            stored, owner = 0, None
        record = None
        if epoch >= stored:
            self.claims[site] = (epoch, process.name)
            record = record_of(site, owner, stored)
            if self.telling and epoch != stored:
                process.why[site] = telling.why(process, site, self.t)
                self.say(process.label, f"claims {site} under view {agreement.revision_of(epoch)}: {process.why[site]}")
        process.inbox.append((self.t + self.latency("claim", process.slot), Claimed(site, epoch, record)))

    def _visit(self, process: Process, now_s: float) -> None:
        for site, at_s in sorted(process.ready.items()):
            if now_s < at_s:
                continue
            del process.ready[site]
            held = process.owner.start(now_s, site)
            if held is None:
                continue
            wall_s = process.wall_s(self.t)
            owns = process.owner.owns(site, held.tenure)
            if not owns or not agreement.has_authority(process.state, now_s, wall_s):
                self.apply(process, process.owner.finished(now_s, held, answer_of(held)))
                process.ready.setdefault(site, now_s)
                continue
            fate = self.fates(process.slot, "visit", site)
            # What the guard let through may still leave the machine G later, whatever has happened to the process.
            tail_s = min(fate.get("tail", 0.0), self.settings.wire_s)
            self._contact(process, held, tail_s, now_s)
            process.visits[site] = (process.boot_s(self.t + tail_s) + fate.get("long", 0.02), held)

    def _contact(self, process: Process, held: ownership.Held, tail_s: float, now_s: float) -> None:
        text = ""
        if self.telling:
            left_s = process.state.deadline_s - now_s
            text = (
                f"{process.why.get(held.site, 'kept')}; tenure {agreement.revision_of(held.tenure)}, "
                f"authority for another {left_s:.2f} s" + (f", on the wire {tail_s:.2f} s later" if tail_s else "")
            )
            self.say(process.label, f"asks {held.site}")
        contact = judge.Contact(self.t + tail_s, held.site, process.label, held.tenure, text)
        row = self._by_site[held.site]
        near = next((other for other in reversed(row[-8:]) if judge.too_close(other, contact)), None)
        if near is not None and self.violation is None:
            first, second = sorted((near, contact), key=lambda contact: contact.at)
            self.violation = first, second
        row.append(contact)
        self.contacts.append(contact)

    def _finish(self, process: Process, now_s: float) -> None:
        for site, (ends, held) in list(process.visits.items()):
            if now_s < ends:
                continue
            del process.visits[site]
            held.ready_s = max(held.ready_s, now_s + DELAY_S * agreement.SLACK)
            if self.claims.get(site, (0, ""))[0] > held.tenure:
                self.apply(process, process.owner.fenced(held))
            else:
                self.apply(process, process.owner.finished(now_s, held, answer_of(held)))
        for ends, held in [item for item in process.leaving if now_s >= item[0]]:
            process.leaving.remove((ends, held))
            self.apply(process, process.owner.finished(now_s, held, None))


def record_of(site: str, owner: str | None, epoch: int) -> records.SiteRecord:
    """A record with one URL to fetch, and no due of its own: politeness must not lean on the store."""
    return records.SiteRecord(
        site=site, owner=owner, owner_epoch=epoch, n=0, pending=1, later=0, later_in_s=None,
        head=(records.QueuedUrl(url=f"http://{site}/", priority=5),), due_in_s=0.0, due_ms=0, due_term="", delay_s=DELAY_S,
        delay_term="minimum", backoff=0, last_fetch_ms=None, pages=0, seen=1, validators=0, checks=0, changes=0, observed_s=0.0, answered_ms=0,
    )  # fmt: skip


def answer_of(held: ownership.Held) -> records.Committed:
    return records.Committed(record=record_of(held.site, None, held.tenure))
