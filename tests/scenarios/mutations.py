"""The rules of the protocol, each weakened: an exploration that passes one of these would prove nothing."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from node import holding, ownership
from shared import agreement, past, records, views
from tests.scenarios import processes

Effects = list[agreement.Effect]
Stepped = tuple[agreement.State, Effects]
NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule weakened: what is put in the place of what."""

    name: str
    rule: str
    says: str
    patches: tuple[tuple[Any, str, Any], ...]

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        kept = [(where, name, where.__dict__[name]) for where, name, _ in self.patches]
        for where, name, instead in self.patches:
            setattr(where, name, instead)
        try:
            yield
        finally:
            for where, name, was in kept:
                setattr(where, name, was)


# --- authority (rule 3) -----------------------------------------------------------------------------------------------

_step = views.step
_adopt = views._adopt
_confirmed = views._confirmed


def _authority_of_a_keep_alive(state: agreement.State, event: agreement.Event, now_s: float) -> Stepped:
    """An acknowledged keep-alive counts like a confirm, from its sending on."""
    state, effects = _step(state, event, now_s)
    if isinstance(event, agreement.Done) and event.kind == "keepalive" and state.member and state.view is not None:
        sent_s = state.next_keepalive_s - state.settings.lease_ttl_s / 5
        until_s = sent_s + state.settings.view_lease_s
        state = replace(state, deadline_s=max(state.deadline_s, until_s), wall_deadline_s=float("inf"))
    return state, effects


def _deadline_of_the_answer(state: agreement.State, event: agreement.Confirmed, now_s: float) -> Stepped:
    wall_s = event.sent_wall_s + now_s - event.sent_s
    return _confirmed(state, replace(event, sent_s=now_s, sent_wall_s=wall_s), now_s)


def _no_wall_deadline(state: agreement.State, now_s: float, _wall_s: float) -> bool:
    return now_s < state.deadline_s


# --- views and elders (rules 2 and 4) ---------------------------------------------------------------------------------

_wanted = views._wanted


def _without_elders(state: agreement.State, snapshot: agreement.Snapshot, _elders: object) -> records.View:
    return _wanted(state, snapshot, ())


def _without_the_unknown(state: agreement.State, snapshot: agreement.Snapshot, elders: Any) -> records.View:
    """The first view of a generation does not wait for whoever acted before it (rule 9)."""
    view = _wanted(state, snapshot, elders)
    return msgspec.structs.replace(view, elders=tuple(who for who in view.elders if who != agreement.UNKNOWN))


def _missed_is_kept(state: agreement.State, event: agreement.Looked, now_s: float) -> tuple[agreement.State, Effects]:
    """Views between that nobody can read are taken for ones that changed nothing."""
    state, effects = _adopt(state, event, now_s)
    return state, [replace(effect, whole=True) if isinstance(effect, agreement.Adopt) else effect for effect in effects]


def _overrides_as_read(state: agreement.State, event: agreement.Event, now_s: float) -> Stepped:
    """An override counts as soon as it is seen, agreed or not."""
    state, effects = _step(state, event, now_s)
    if isinstance(event, agreement.Looked) and state.member and state.view is not None:
        read = event.snapshot
        live = {site: node for site, node in read.overrides.items() if node in state.view.members}
        if read.epoch == state.epoch and live != state.view.overrides:
            view = msgspec.structs.replace(state.view, overrides=live)
            effects.append(agreement.Adopt(((state.epoch, view),), True, state.incarnation))
            if state.settled >= state.epoch:
                effects.append(agreement.Settle(state.epoch, {}))
    return state, effects


# --- past (rule 5) ----------------------------------------------------------------------------------------------------

_verdict = past.verdict
_judge = views._judge
_settled = ownership.Ownership.settled


def _gone_at_once(
    state: agreement.State, snapshot: agreement.Snapshot, who: tuple[str, int], now_s: float
) -> records.Settled | None:
    if who != agreement.UNKNOWN and past.incarnation(snapshot, who[0]) != who[1]:
        return "time"
    return _verdict(state, snapshot, who, now_s)


def _beats_by_id(
    state: agreement.State, snapshot: agreement.Snapshot, who: tuple[str, int], now_s: float
) -> records.Settled | None:
    """The newest beat of any incarnation of the id stands for all of them."""
    of_id = [(seen.revision, seen) for seen in snapshot.beats.values() if seen.beat.node == who[0]]
    if of_id:
        snapshot = replace(snapshot, beats={**snapshot.beats, who[1]: max(of_id)[1]})
    return _verdict(state, snapshot, who, now_s)


def _judge_each(state: agreement.State, snapshot: agreement.Snapshot, now_s: float) -> Stepped:
    """Tell of everyone who is past, without waiting for the others."""
    after, effects = _judge(state, snapshot, now_s)
    if snapshot.view is not None and after.settled < after.epoch:
        named = {who: past.verdict(state, snapshot, who, now_s) for who in past.named(snapshot.view)}
        effects.insert(0, agreement.Settle(-state.epoch, {who[0]: proof for who, proof in named.items() if proof}))
    return after, effects


def _claim_now(self: ownership.Ownership, ripe: list[str]) -> list[ownership.Effect]:
    for group in self._waiting.values():
        for site in group.keys() & ripe:
            del group[site]
    return self._claim(ripe)


def _settled_by_the_previous_owner(
    self: ownership.Ownership, now_s: float, settle: agreement.Settle
) -> list[ownership.Effect]:
    """A site may be claimed when the owner in the view before is past, whoever stood in still earlier ones."""
    if settle.epoch > 0:
        return _settled(self, now_s, settle)
    ripe = []
    for site in sorted(self.waiting()):
        era = self.gained_in(site)
        before = self.eras[self.eras.index(era) - 1] if era is not None and self.eras.index(era) else None
        if era is self.eras[-1] and before is not None and before.placement.owner(site) in settle.how:
            ripe.append(site)
    return _claim_now(self, ripe)


# --- what the owner does (rules 4 and 6) ------------------------------------------------------------------------------

_adopted = ownership.Ownership.adopted


def _ack_at_once(self: ownership.Ownership) -> list[ownership.Effect]:
    """Acknowledge while what was lost is still in flight."""
    leaving, self._leaving = self._leaving, {}
    try:
        return _acknowledge(self)
    finally:
        self._leaving = leaving


_acknowledge = ownership.Ownership._acknowledge


def _waiting_is_ready(self: ownership.Ownership, now_s: float, change: agreement.Adopt) -> list[ownership.Effect]:
    """A site that still waited when the next view came is kept with all others, and so may be claimed."""
    waited = {site: self.sites[site] for site in self.waiting()}
    effects = _adopted(self, now_s, change)
    still = set(self.waiting())
    ripe = [site for site, held in sorted(waited.items()) if self.sites.get(site) is held and site in still]
    return [*effects, *_claim_now(self, ripe)]


_hold = ownership.Ownership._hold
_finished = ownership.Ownership.finished
_first_contact = ownership.Ownership._first_contact


def _also_with_a_request_on(
    self: ownership.Ownership, fresh: list[tuple[str, ownership.Era]], claims: list[str]
) -> list[ownership.Effect]:
    """A site makes room while its request is under way, and nothing of it is committed."""
    wanted = max(0, len(fresh) - self.holding.room())
    for site in list(self._visiting)[:wanted]:
        del self._visiting[site]
        self.holding.drop(site)
        self.holding.outside = True
    return _hold(self, fresh, claims)


def _finished_if_held(
    self: ownership.Ownership, now_s: float, held: ownership.Held, answer: records.Committed | None
) -> list[ownership.Effect]:
    """The end of a visit of what was let go meanwhile concerns nobody."""
    gone = held.phase is ownership.Phase.VISITING and self.sites.get(held.site) is not held
    return [] if gone else _finished(self, now_s, held, answer)


def _taken_up_at_once(self: ownership.Ownership, now_s: float, record: records.SiteRecord) -> float:
    """What was ours before is visited as soon as it is in memory again, by the store's due alone."""
    again = record.owner == self.me and record.owner_epoch >= self._since
    return now_s + record.due_in_s if again else _first_contact(self, now_s, record)


def _silence(seconds: Callable[[agreement.Settings], float]) -> property:
    return property(seconds)


STATED = (
    Mutation("keep-alive", "3", "authority from a keep-alive", ((views, "step", _authority_of_a_keep_alive),)),
    Mutation("receipt", "3", "the deadline counts from the answer", ((views, "_confirmed", _deadline_of_the_answer),)),
    Mutation("no-VL", "6", "a silent owner is waited for G alone",
             ((agreement.Settings, "silence_s", _silence(lambda it: it.wire_s * agreement.SLACK)),)),
    Mutation("no-G", "6", "a silent owner is waited for VL alone",
             ((agreement.Settings, "silence_s", _silence(lambda it: it.view_lease_s * agreement.SLACK)),)),
    Mutation("no-D", "6", "the first request comes with the claim",
             ((ownership.Ownership, "_first_contact", lambda _self, now_s, _record: now_s),)),
    Mutation("previous-owner-only", "5", "only the owner in the view before must be past",
             ((views, "_judge", _judge_each), (ownership.Ownership, "settled", _settled_by_the_previous_owner))),
    Mutation("gone-at-once", "5", "whose key is gone is past at once", ((past, "verdict", _gone_at_once),)),
    Mutation("ack-before-stop", "4", "a beat names a view whose losses are in flight",
             ((ownership.Ownership, "_acknowledge", _ack_at_once),)),
    Mutation("no-elders", "2", "only the members of the newest view are asked", ((views, "_wanted", _without_elders),)),
    Mutation("missed-kept", "4", "a view that was missed is taken for one that kept", ((views, "_adopt", _missed_is_kept),)),
    Mutation("waiting-ready", "4", "a site that waited is ready with the next view",
             ((ownership.Ownership, "adopted", _waiting_is_ready),)),
    Mutation("beats-by-id", "5", "one incarnation's beat stands for another's", ((past, "verdict", _beats_by_id),)),
    Mutation("overrides-outside", "2", "an override counts before it is agreed", ((views, "step", _overrides_as_read),)),
    Mutation("wall-clock", "3", "durations by the wall clock",
             ((processes.Process, "boot_s", lambda self, t: self.wall_s(t)),)),
)  # fmt: skip
FURTHER = (
    Mutation("no-silence", "6", "a silent owner is not waited for", ((agreement.Settings, "silence_s", _silence(lambda _: 0.0)),)),
    Mutation("no-wall-deadline", "3", "a machine that slept has the authority it fell asleep with",
             ((agreement, "has_authority", _no_wall_deadline),)),
    Mutation("let-go-early", "10", "a site makes room with its request on and nothing committed",
             ((ownership.Ownership, "_hold", _also_with_a_request_on),
              (ownership.Ownership, "finished", _finished_if_held))),
    Mutation("taken-up-at-once", "10", "a site taken up again is asked by the store's due alone",
             ((ownership.Ownership, "_first_contact", _taken_up_at_once),
              (holding.Holding, "due_s", lambda _self, _site: 0.0))),
    Mutation("no-unknown-elder", "9", "the first view of a generation waits for nobody", ((views, "_wanted", _without_the_unknown),)),
)  # fmt: skip
BY_SCHEDULE = {"no-unknown-elder"}
"""Too shy for a search at random: caught by its directed schedule alone."""
MUTATIONS = {mutation.name: mutation for mutation in (*STATED, *FURTHER)}


@contextlib.contextmanager
def weakened(name: str | None) -> Iterator[None]:
    """The protocol with this rule weakened; as it is without a name."""
    if name is None:
        yield
        return
    with MUTATIONS[name].applied():
        yield
