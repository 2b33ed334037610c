"""The membership protocol as `step(state, event) -> (state, effects)`: who takes part, until when, and who is past.

Pure: knows no etcd, clock or thread. `shared.membership` runs the effects against etcd and feeds back what happened;
the simulation does the same against a model. The rules are numbered as in ARCHITECTURE.md, "Ownership".
"""

from dataclasses import replace

from shared import agreement, errors, past, placement, records

# --- the step -------------------------------------------------------------------------------------------------------


BEHIND_S = 3.0  # reads of a paused leader come right again within an election, a restored etcd's do not


def step(  # noqa: C901, PLR0911, PLR0912 - the table of events
    state: agreement.State, event: agreement.Event, now_s: float
) -> tuple[agreement.State, list[agreement.Effect]]:
    """Apply one event at local time `now_s`; return the new state and what to do, in order."""
    match event:
        case agreement.Tick():
            return _ticked(state, now_s)
        case agreement.Joined():
            return _joined(state, event, now_s)
        case agreement.Exists():
            return _exists(state, now_s), []
        case agreement.Looked():
            return _looked(state, event, now_s)
        case agreement.Confirmed():
            return _confirmed(state, event, now_s)
        case agreement.Denied():
            return _denied(state, event, now_s)
        case agreement.Outdated():
            return _outdated(state, event, now_s), []
        case agreement.Hint():
            return replace(state, next_look_s=now_s), []
        case agreement.Gone():
            state = _free(state, "keepalive")
            if event.incarnation != state.incarnation or state.phase not in (
                agreement.Phase.MEMBER,
                agreement.Phase.DRAINING,
            ):
                return state, []
            return _lost(state, now_s, "lease lost")
        case agreement.Done():
            return _answered(state, event.kind), []
        case agreement.Failed():
            return _free(state, event.kind), []
        case agreement.Applied():
            return _applied(state, event, now_s), []
        case agreement.Stopped():
            return _stopped(state, event), []
        case agreement.Drain():
            return replace(state, draining=True), []


def _applied(state: agreement.State, event: agreement.Applied, now_s: float) -> agreement.State:
    if event.epoch <= state.applied or event.epoch > state.epoch:
        return state
    return replace(state, applied=event.epoch, next_confirm_s=now_s)


def _stopped(state: agreement.State, event: agreement.Stopped) -> agreement.State:
    if event.incarnation != state.lost_incarnation or state.phase is not agreement.Phase.STOPPING:
        return state
    return replace(state, stopped=True)


def _ticked(state: agreement.State, now_s: float) -> tuple[agreement.State, list[agreement.Effect]]:
    state, effects = _move(state, now_s)
    if state.phase is agreement.Phase.LEFT:
        return state, effects
    look_every = state.settings.hurry_s if _hurried(state, now_s) else state.settings.look_s
    # What is due while its like is unanswered stays due: a hint or an ack must not wait for the next round (P5).
    if now_s >= state.next_look_s and agreement.Look.kind not in state.busy:
        state = _call(replace(state, next_look_s=now_s + look_every), agreement.Look(), effects)
    if state.member:
        if now_s >= state.next_confirm_s and state.view is not None and agreement.Confirm.kind not in state.busy:
            state = replace(state, next_confirm_s=now_s + state.settings.confirm_s)
            state = _call(state, agreement.Confirm(state.epoch, state.applied), effects)
        # Rule 1: a node whose confirms are not answered stops keeping its lease alive, so that others take over.
        if now_s >= state.next_keepalive_s and now_s < state.confirmed_s + state.settings.view_lease_s:
            state = replace(state, next_keepalive_s=now_s + state.settings.lease_ttl_s / 5)
            state = _call(state, agreement.KeepAlive(), effects)
    return state, effects


def _move(state: agreement.State, now_s: float) -> tuple[agreement.State, list[agreement.Effect]]:
    """What the phase itself asks for, whatever the clock of calls says."""
    effects: list[agreement.Effect] = []
    match state.phase:
        case agreement.Phase.OUT if state.draining:
            if "join" not in state.busy:  # one that is on its way may succeed, and then there is a key to give up
                state = replace(state, phase=agreement.Phase.LEFT)
        case agreement.Phase.OUT if state.cluster_id and now_s >= state.next_join_s:
            state = _call(state, agreement.Join(), effects)
        case agreement.Phase.MEMBER if state.draining:
            state = _call(state, agreement.Weigh(), effects)
        case agreement.Phase.DRAINING if _may_leave(state):
            state = _call(state, agreement.Leave(state.incarnation, state.epoch), effects)
        case agreement.Phase.STOPPING if state.stopped:
            state = _call(state, agreement.Resign(state.lost_incarnation), effects)
        case agreement.Phase.RESTING if state.draining:
            state = replace(state, phase=agreement.Phase.LEFT)
    return state, effects


def _may_leave(state: agreement.State) -> bool:
    """Rule 8: the view gives us nothing, and what it took is stopped and committed."""
    listed = state.view.members.get(state.me) if state.view else None
    mine = listed is not None and listed.incarnation == state.incarnation
    return state.view is not None and (not mine or listed.weight == 0) and state.applied >= state.epoch  # type: ignore[union-attr]


def _hurried(state: agreement.State, now_s: float) -> bool:
    # Where a member stays silent its site's wait ends by time, and looking more often would not shorten it.
    return (
        (state.waiting and now_s < state.adopted_s + state.settings.silence_s)
        or state.draining
        or state.differs_s is not None
        or state.phase in (agreement.Phase.OUT, agreement.Phase.STOPPING)
    )


def _exists(state: agreement.State, now_s: float) -> agreement.State:
    since = now_s if state.exists_s is None else state.exists_s
    return replace(_free(state, "join"), exists_s=since, next_join_s=now_s + state.settings.confirm_s)


def _joined(
    state: agreement.State, event: agreement.Joined, now_s: float
) -> tuple[agreement.State, list[agreement.Effect]]:
    state = _free(state, "join")
    if state.phase is not agreement.Phase.OUT:
        return state, []
    state = replace(
        state,
        phase=agreement.Phase.MEMBER,
        incarnation=event.incarnation,
        revision=max(state.revision, event.incarnation),
        exists_s=None,
        # The first confirm has to be answered within VL of the join, or the lease is left to run out.
        confirmed_s=now_s,
        next_confirm_s=now_s,
        next_look_s=now_s,
        next_keepalive_s=now_s,
    )
    return state, []


def _confirmed(
    state: agreement.State, event: agreement.Confirmed, now_s: float
) -> tuple[agreement.State, list[agreement.Effect]]:
    state = _free(state, "confirm")
    if event.incarnation != state.incarnation or state.phase not in (
        agreement.Phase.MEMBER,
        agreement.Phase.DRAINING,
    ):
        return state, []
    if _went_back(state, event):
        return _restored(state, now_s, cluster_id=event.cluster_id)
    later, shown_s = state.outdated
    if event.epoch == state.epoch < later and event.sent_s > shown_s:
        # The view of that epoch was agreed before the store could show it, and yet ours still stands: etcd has
        # forgotten it, and nobody who lives remembers. Its generation is passed by, or every claim would be refused.
        state = replace(state, generation=max(state.generation, later // agreement.GENERATION_STEP))
        return _restored(state, now_s)
    state = replace(state, confirmed_s=now_s, revision=max(state.revision, event.revision), behind_s=None)
    if event.epoch != state.epoch:
        return state, []  # rule 3: only a confirm of the view we apply gives authority
    lease = state.settings.view_lease_s
    deadline_s = max(state.deadline_s, event.sent_s + lease)
    wall_deadline_s = max(state.wall_deadline_s, event.sent_wall_s + lease)
    return replace(
        state,
        deadline_s=deadline_s,
        wall_deadline_s=wall_deadline_s,
        transfer_s=max(state.transfer_s, deadline_s),
        wall_transfer_s=max(state.wall_transfer_s, wall_deadline_s),
    ), []


def _denied(
    state: agreement.State, event: agreement.Denied, now_s: float
) -> tuple[agreement.State, list[agreement.Effect]]:
    """Something changed under us: nothing is more urgent than to see what."""
    effects: list[agreement.Effect] = []
    if event.incarnation == state.incarnation and _went_back(state, event):
        state, effects = _restored(state, now_s, cluster_id=event.cluster_id)
    return replace(_free(state, event.kind), next_look_s=now_s), effects


def _outdated(state: agreement.State, event: agreement.Outdated, now_s: float) -> agreement.State:
    """Either a newer view is on its way to us, or etcd went back and Redis did not: the next confirm tells."""
    if event.epoch <= max(state.epoch, state.outdated[0]):
        return replace(state, next_look_s=now_s)
    return replace(state, outdated=(event.epoch, now_s), next_look_s=now_s, next_confirm_s=now_s)


def _went_back(state: agreement.State, event: agreement.Confirmed | agreement.Denied) -> bool:
    """Was this write answered by another etcd, or by one that has forgotten what we saw (rule 9)?"""
    if event.cluster_id and state.cluster_id and event.cluster_id != state.cluster_id:
        return True
    return 0 < event.revision < event.floor


def _looked(
    state: agreement.State, event: agreement.Looked, now_s: float
) -> tuple[agreement.State, list[agreement.Effect]]:
    state = _free(state, "look")
    if event.incarnation != state.incarnation:
        return replace(state, next_look_s=now_s), []
    snapshot = event.snapshot
    if snapshot.cluster_id == state.cluster_id and snapshot.revision < event.floor:
        # A paused leader has answered reads from the past (etcd #20418): that passes. Whether etcd itself went back
        # a write tells at once, and reads that stay behind tell too.
        since = now_s if state.behind_s is None else state.behind_s
        if now_s < since + BEHIND_S:
            return replace(state, behind_s=since), []
    state, effects = _known(state, event, now_s)
    if state.phase is agreement.Phase.RESTING:
        return _rested(state, snapshot, now_s), effects
    if not state.member:
        return state, effects
    state = _weighed(state, snapshot)
    state, adopted = _adopt(state, event, now_s)
    effects += adopted
    if snapshot.epoch == state.epoch:
        state, judged = _judge(state, snapshot, now_s)
        effects += judged
    if _hurried(state, now_s):
        # This look was sent when there was no hurry, and no hint need follow it: beats are not watched.
        state = replace(state, next_look_s=min(state.next_look_s, now_s + state.settings.hurry_s))
    return state, effects


def _known(
    state: agreement.State, event: agreement.Looked, now_s: float
) -> tuple[agreement.State, list[agreement.Effect]]:
    """Is this the etcd we know, and is our key still in it?"""
    snapshot = event.snapshot
    effects: list[agreement.Effect] = []
    other = state.cluster_id and snapshot.cluster_id != state.cluster_id
    emptied = snapshot.view is None and state.generation_seen_s != float("inf")
    older = snapshot.view is not None and snapshot.epoch < state.epoch
    # Its revisions come twice: another view stands where ours did.
    again = state.view is not None and snapshot.epoch == state.epoch and snapshot.view != state.view
    if other or emptied or older or again or snapshot.revision < event.floor:
        state, effects = _restored(state, now_s, cluster_id=snapshot.cluster_id)
    state = _saw(state, snapshot, now_s)
    if state.member and past.incarnation(snapshot, state.me) != state.incarnation:
        state, lost = _lost(state, now_s, "member key gone")
        effects += lost
    return state, effects


def _weighed(state: agreement.State, snapshot: agreement.Snapshot) -> agreement.State:
    """Weight 0 under our key: a drain was asked for here or by command, and has begun (rule 8)."""
    if snapshot.members[state.me].value.weight > 0 or (state.value.weight == 0 and not state.draining):
        return state
    return replace(state, draining=True, phase=agreement.Phase.DRAINING)


def _restored(
    state: agreement.State, now_s: float, *, cluster_id: int = 0
) -> tuple[agreement.State, list[agreement.Effect]]:
    """Rule 9: etcd went back or is another; nothing it agreed to before binds us, or anybody, any more."""
    generation = max(state.generation, state.view.generation if state.view else 0) + 1
    state, effects = _lost(state, now_s, "etcd restored") if state.member else (state, [])
    state = replace(
        state,
        cluster_id=cluster_id or state.cluster_id,
        generation=generation,
        generation_seen_s=float("inf"),
        outdated=(0, float("inf")),
        behind_s=None,
        epoch=0,
        view=None,
        settled=0,
        applied=0,
        revision=0,
        revisions=(),
    )
    return state, effects


def _saw(state: agreement.State, snapshot: agreement.Snapshot, now_s: float) -> agreement.State:
    """Remember when a revision was first seen: rule 5 counts a dead node's silence from there."""
    revisions = state.revisions
    if not revisions or snapshot.revision > revisions[-1][0]:
        revisions = (*revisions, (snapshot.revision, now_s))[-agreement.REVISIONS_KEPT :]
    generation, seen_s = state.generation, state.generation_seen_s
    if snapshot.view is not None and (snapshot.view.generation > generation or seen_s == float("inf")):
        generation, seen_s = max(generation, snapshot.view.generation), now_s
    return replace(
        state,
        cluster_id=snapshot.cluster_id,
        behind_s=None,
        revision=max(state.revision, snapshot.revision),
        revisions=revisions,
        generation=generation,
        generation_seen_s=seen_s,
    )


def _rested(state: agreement.State, snapshot: agreement.Snapshot, now_s: float) -> agreement.State:
    """Rule 3, end: join again once a view without us stands and the failure could be seen; at once if alone."""
    alone = not snapshot.members
    listed = snapshot.view is not None and state.me in snapshot.view.members
    rest_s = snapshot.rejoin.get(state.me, state.settings.rejoin_s)
    if alone or (not listed and now_s >= state.lost_s + rest_s):
        return replace(state, phase=agreement.Phase.OUT)
    return state


def _lost(state: agreement.State, now_s: float, reason: str) -> tuple[agreement.State, list[agreement.Effect]]:
    """Our incarnation is over: no authority from this moment; resign only when all has stopped."""
    lost = state.incarnation
    state = replace(
        agreement.without_authority(state),
        phase=agreement.Phase.STOPPING,
        lost_incarnation=lost,
        incarnation=0,
        lost_s=now_s,
        stopped=False,
        confirmed_s=float("-inf"),
        epoch=0,
        view=None,
        applied=0,
        settled=0,
        differs_s=None,
        busy=frozenset(),
    )
    return state, [agreement.StopAll(lost, reason)]


def _adopt(
    state: agreement.State, event: agreement.Looked, now_s: float
) -> tuple[agreement.State, list[agreement.Effect]]:
    """Rule 4: a newer view ends authority until a confirm under it was answered."""
    snapshot = event.snapshot
    if snapshot.view is None or snapshot.epoch <= state.epoch:
        return state, []
    chain = (*(event.chain or ()), (snapshot.epoch, snapshot.view))
    whole = event.chain is not None and _linked(state.epoch, chain)
    state = replace(
        state,
        epoch=snapshot.epoch,
        view=snapshot.view,
        deadline_s=float("-inf"),
        wall_deadline_s=float("-inf"),
        next_confirm_s=now_s,
        differs_s=None,
        adopted_s=now_s,
    )
    views = chain if whole else ((snapshot.epoch, snapshot.view),)
    return state, [agreement.Adopt(views, whole, state.incarnation)]


def _linked(epoch: int, chain: tuple[tuple[int, records.View], ...]) -> bool:
    """Each view names the revision of the one before it, down to the epoch we hold."""
    for at, view in chain:
        if (
            not epoch
            or view.previous != agreement.revision_of(epoch)
            or view.generation != epoch // agreement.GENERATION_STEP
        ):
            return False
        epoch = at
    return True


def _judge(
    state: agreement.State, snapshot: agreement.Snapshot, now_s: float
) -> tuple[agreement.State, list[agreement.Effect]]:
    """Rules 2 and 5 on one read: who is past, and does the view still say who is there?"""
    effects: list[agreement.Effect] = []
    view = snapshot.view
    elders: tuple[tuple[str, int], ...] = (agreement.UNKNOWN,)
    if view is not None:
        verdicts = {who: past.verdict(state, snapshot, who, now_s) for who in past.named(view)}
        if state.settled < state.epoch and all(verdicts.values()):
            state = replace(state, settled=state.epoch)
            effects.append(agreement.Settle(state.epoch, past.how(verdicts)))
        old = [who for who in view.elders if verdicts[who] is None]
        elders = tuple(dict.fromkeys([*past.members(view), *old]))
    wanted = _wanted(state, snapshot, elders)
    if view is not None and _same(view, wanted):
        return replace(state, differs_s=None), effects
    since = now_s if state.differs_s is None else state.differs_s
    state = replace(state, differs_s=since)
    if now_s >= since + state.settings.gather_s or (view is not None and _takes(view, wanted)):
        keep = {incarnation for _, incarnation in (*past.members(wanted), *wanted.elders)}
        alive = {member.incarnation for member in snapshot.members.values()}
        drop = tuple(sorted(set(snapshot.beats) - keep - alive))[:64]
        state = _call(state, agreement.Propose(wanted, state.epoch, snapshot.revision, drop), effects)
    return state, effects


def _wanted(state: agreement.State, snapshot: agreement.Snapshot, elders: tuple[tuple[str, int], ...]) -> records.View:
    """The view that these member keys ask for; members of another fingerprint are never listed."""
    ours = snapshot.view.fingerprint if snapshot.view and _standing(snapshot) else state.value.fingerprint
    members = {
        node: records.Member(incarnation=seen.incarnation, weight=seen.value.weight, address=seen.value.address)
        for node, seen in sorted(snapshot.members.items())
        if seen.value.fingerprint == ours
    }
    generation = max(state.generation, snapshot.view.generation if snapshot.view else 0)
    fresh = snapshot.view is None or generation > snapshot.view.generation
    return records.View(
        members=members,
        overrides={
            site: node
            for site, node in sorted(snapshot.overrides.items())
            if node in members and members[node].weight > 0
        },
        fingerprint=dict(ours),
        generation=generation,
        previous=0 if fresh else agreement.revision_of(snapshot.epoch),
        elders=(*elders, agreement.UNKNOWN) if fresh and agreement.UNKNOWN not in elders else elders,
    )


def _same(view: records.View, wanted: records.View) -> bool:
    return (
        view.members == wanted.members and view.overrides == wanted.overrides and view.generation == wanted.generation
    )


def _takes(view: records.View, wanted: records.View) -> bool:
    """Does the change take something from a member of the view? Losses are never held back, joins are gathered."""
    return view.generation != wanted.generation or any(
        wanted.members.get(node) != member for node, member in view.members.items()
    )


def _call(state: agreement.State, call: agreement.Call, effects: list[agreement.Effect]) -> agreement.State:
    """Ask for a call unless one of its kind is still unanswered."""
    if call.kind in state.busy:
        return state
    effects.append(call)
    return replace(state, busy=state.busy | {call.kind})


def _free(state: agreement.State, kind: str) -> agreement.State:
    return replace(state, busy=state.busy - {kind})


def _answered(state: agreement.State, kind: str) -> agreement.State:
    state = _free(state, kind)
    if kind == "resign" and state.phase is agreement.Phase.STOPPING:
        return replace(state, phase=agreement.Phase.RESTING)
    if kind == "leave" and state.phase is agreement.Phase.DRAINING:
        return replace(agreement.without_authority(state), phase=agreement.Phase.LEFT)
    if kind in ("propose", "weigh"):
        return replace(state, next_look_s=float("-inf"))
    return state


def refused(state: agreement.State, snapshot: agreement.Snapshot) -> str | None:
    """Why this node may not join, or None: the cluster computes other owners than it would (rule 2)."""
    if snapshot.view is None or not _standing(snapshot):
        return None
    return placement.mismatch(state.value.fingerprint, snapshot.view.fingerprint)


def _standing(snapshot: agreement.Snapshot) -> bool:
    """Is any member of the view still there? If not, whoever comes next may bring other settings."""
    members = snapshot.view.members if snapshot.view else {}
    return any(past.incarnation(snapshot, node) == member.incarnation for node, member in members.items())


def check(state: agreement.State) -> None:
    """Raise InvalidTransition where the state contradicts itself; called by tests and the simulation."""
    if state.phase in (
        agreement.Phase.OUT,
        agreement.Phase.STOPPING,
        agreement.Phase.RESTING,
        agreement.Phase.LEFT,
    ) and state.deadline_s != float("-inf"):
        raise errors.InvalidTransition(f"authority while {state.phase}")
    if state.applied > state.epoch:
        raise errors.InvalidTransition("an ack for a view that was not adopted")
