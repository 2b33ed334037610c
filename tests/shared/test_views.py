"""The membership protocol, one rule at a time, in literal events."""

import pytest

from shared import agreement, errors, past, placement, records, views

FINGERPRINT = {"ring": "xxh3-64/4"}
SETTINGS = agreement.Settings()
A, B = 10, 20  # incarnations


def value(weight=1.0, fingerprint=FINGERPRINT):
    return records.MemberValue(weight=weight, address="", fingerprint=fingerprint)


def start(me="a"):
    return agreement.State(me=me, value=value(), settings=SETTINGS)


def view(members, *, previous=0, elders=(), generation=0, overrides=None):
    listed = {
        node: records.Member(incarnation=inc, weight=weight, address="") for node, (inc, weight) in members.items()
    }
    return records.View(
        members=listed,
        fingerprint=FINGERPRINT,
        previous=previous,
        elders=elders,
        generation=generation,
        overrides=overrides or {},
    )


def snapshot(revision, *, members=None, at=None, beats=None, overrides=None, cluster_id=1, rejoin=None):
    """`at` = (view revision, view); members = {node: incarnation}."""
    seen = {node: agreement.SeenMember(inc, 1, value()) for node, inc in (members or {}).items()}
    epoch = agreement.epoch_of(at[1].generation, at[0]) if at else 0
    return agreement.Snapshot(
        cluster_id, revision, at[1] if at else None, epoch, seen, beats or {}, overrides or {}, rejoin or {}
    )


def beat(revision, node, applied, *, resigned=False):
    return agreement.SeenBeat(revision, records.Beat(node=node, applied=applied, resigned=resigned))


class Story:
    """Feeds events, keeps the state, collects the effects by kind."""

    def __init__(self, state):
        self.state = state
        self.effects = []

    def feed(self, event, now):
        self.state, effects = views.step(self.state, event, now)
        views.check(self.state)
        self.effects += effects
        return effects

    def look(self, snap, now, chain=()):
        return self.feed(agreement.Looked(self.state.incarnation, self.state.revision, snap, chain), now)

    def of(self, kind):
        return [effect for effect in self.effects if isinstance(effect, kind)]


def member(now=0.0, others=None, at_revision=30):
    """Node a, joined, in a view at `at_revision` with the others."""
    story = Story(start())
    story.look(snapshot(5), now)
    story.feed(agreement.Tick(), now)
    story.feed(agreement.Joined(A), now)
    listed = {"a": (A, 1.0), **{node: (inc, 1.0) for node, inc in (others or {}).items()}}
    agreed = (at_revision, view(listed))
    story.look(snapshot(at_revision, members={"a": A, **(others or {})}, at=agreed), now)
    story.agreed = agreed
    return story


def test_a_node_joins_after_it_has_looked():
    story = Story(start())
    assert [type(e) for e in story.feed(agreement.Tick(), 0.0)] == [agreement.Look]
    story.look(snapshot(5), 0.1)
    assert agreement.Join() in story.feed(agreement.Tick(), 0.2)
    story.feed(agreement.Joined(A), 0.3)
    assert story.state.phase is agreement.Phase.MEMBER


def test_joins_are_gathered_for_a_second_and_losses_are_not():
    story = member(now=0.0, others={"b": B})
    three = {"a": A, "b": B, "c": 31}
    story.look(snapshot(32, members=three, at=story.agreed), 1.0)
    assert story.of(agreement.Propose) == []
    story.look(snapshot(33, members=three, at=story.agreed), 2.1)
    assert set(story.of(agreement.Propose)[-1].view.members) == {"a", "b", "c"}

    story = member(now=0.0, others={"b": B})
    story.look(snapshot(40, members={"a": A}, at=story.agreed), 1.0)
    (proposed,) = story.of(agreement.Propose)
    assert set(proposed.view.members) == {"a"}
    assert proposed.view.previous == 30
    assert ("b", B) in proposed.view.elders
    assert (proposed.epoch, proposed.revision) == (30, 40)


def test_authority_comes_from_a_confirm_of_the_view_held_and_counts_from_its_sending():
    story = member(now=0.0)
    assert not agreement.has_authority(story.state, 0.0, 0.0)
    story.feed(agreement.Confirmed(A, 30, sent_s=1.0, sent_wall_s=1000.0), 3.0)
    assert agreement.has_authority(story.state, 5.9, 1004.9)
    assert not agreement.has_authority(story.state, 6.0, 1004.0)
    assert not agreement.has_authority(story.state, 5.0, 1006.0), "a forward jump of the wall clock ends it too"
    assert agreement.has_authority(story.state, 5.0, 5.0), "a backward jump changes nothing"


def test_a_confirm_of_another_view_or_incarnation_gives_nothing():
    story = member(now=0.0)
    story.feed(agreement.Confirmed(A, 29, 1.0, 1.0), 1.0)
    story.feed(agreement.Confirmed(A + 1, 30, 1.0, 1.0), 1.0)
    assert not agreement.has_authority(story.state, 1.1, 1.1)


def test_a_newer_view_ends_authority_until_it_is_confirmed():
    story = member(now=0.0, others={"b": B})
    story.feed(agreement.Confirmed(A, 30, 1.0, 1.0), 1.0)
    newer = (50, view({"a": (A, 1.0)}, previous=30, elders=(("a", A), ("b", B))))
    story.look(snapshot(50, members={"a": A}, at=newer), 2.0)
    assert not agreement.has_authority(story.state, 2.0, 2.0)
    assert story.of(agreement.Adopt)[-1].whole
    confirm = story.feed(agreement.Tick(), 2.0)
    assert agreement.Confirm(50, 0) in confirm, "the beat still names what was applied before"


def test_a_look_that_finds_a_new_view_is_followed_by_another_soon():
    """Or the acks that came meanwhile would be seen a second later (P5)."""
    story = member(now=0.0, others={"b": B})
    settled = {A: beat(31, "a", 30), B: beat(32, "b", 30)}
    story.look(snapshot(32, members={"a": A, "b": B}, at=story.agreed, beats=settled), 1.0)
    assert agreement.Look() in story.feed(agreement.Tick(), 2.0), "nothing is awaited: the next look is a second away"
    newer = (50, view({"a": (A, 1.0)}, previous=30, elders=(("a", A), ("b", B))))
    story.look(snapshot(50, members={"a": A}, at=newer, beats=settled), 2.01)
    assert agreement.Look() not in story.feed(agreement.Tick(), 2.05)
    assert agreement.Look() in story.feed(agreement.Tick(), 2.12)


def test_what_falls_due_while_its_like_is_unanswered_follows_the_answer_at_once():
    """An ack a second late would be a takeover a second late (P5)."""
    story = member(now=0.0)
    assert agreement.Confirm(30, 0) in story.feed(agreement.Tick(), 1.0)
    story.feed(agreement.Applied(30), 1.01)
    story.feed(agreement.Tick(), 1.02)
    story.feed(agreement.Confirmed(A, 30, sent_s=1.0, sent_wall_s=1.0), 1.03)
    assert agreement.Confirm(30, 30) in story.feed(agreement.Tick(), 1.05)

    story.feed(agreement.Hint(), 1.1)
    assert story.of(agreement.Look), "one is on its way, sent before the hint"
    assert agreement.Look() not in story.feed(agreement.Tick(), 1.11)
    story.look(snapshot(31, members={"a": A}, at=story.agreed), 1.12)
    assert agreement.Look() in story.feed(agreement.Tick(), 1.15)


def test_views_that_were_missed_are_read_from_history_or_nothing_is_kept():
    story = member(now=0.0, others={"b": B})
    missed = (40, view({"a": (A, 1.0)}, previous=30))
    newest = (50, view({"a": (A, 1.0), "b": (45, 1.0)}, previous=40))
    story.look(snapshot(50, members={"a": A, "b": 45}, at=newest), 2.0, chain=(missed,))
    adopted = story.of(agreement.Adopt)[-1]
    assert adopted.whole and [epoch for epoch, _ in adopted.views] == [40, 50]

    for chain in (None, ()):
        story = member(now=0.0, others={"b": B})
        story.look(snapshot(50, members={"a": A, "b": 45}, at=newest), 2.0, chain=chain)
        assert not story.of(agreement.Adopt)[-1].whole


def test_the_own_key_gone_stops_everything_then_resigns_then_rests():
    story = member(now=0.0, others={"b": B})
    story.feed(agreement.Confirmed(A, 30, 1.0, 1.0), 1.0)
    story.look(snapshot(60, members={"b": B}, at=story.agreed), 2.0)
    assert story.of(agreement.StopAll) == [agreement.StopAll(A, "member key gone")]
    assert not agreement.has_authority(story.state, 2.0, 2.0)
    story.feed(agreement.Tick(), 2.1)
    assert story.of(agreement.Resign) == [], "not before everything has stopped"
    story.feed(agreement.Stopped(A), 3.0)
    story.feed(agreement.Tick(), 3.1)
    assert story.of(agreement.Resign) == [agreement.Resign(A)]
    story.feed(agreement.Done("resign"), 3.2)
    without = (61, view({"b": (B, 1.0)}, previous=30))
    story.look(snapshot(62, members={"b": B}, at=without), 20.0)
    assert story.state.phase is agreement.Phase.RESTING
    story.look(snapshot(63, members={"b": B}, at=without), 2.0 + SETTINGS.rejoin_s)
    assert story.state.phase is agreement.Phase.OUT


def test_a_node_that_is_alone_joins_again_at_once_and_a_command_sets_the_rest():
    for rejoin, members, rests in (({}, {}, False), ({"a": 3.0}, {"b": B}, False), ({"a": 90.0}, {"b": B}, True)):
        story = member(now=0.0, others={"b": B})
        story.feed(agreement.Gone(A), 1.0)
        story.feed(agreement.Stopped(A), 1.0)
        story.feed(agreement.Tick(), 1.0)
        story.feed(agreement.Done("resign"), 1.0)
        without = (61, view({"b": (B, 1.0)}, previous=30))
        story.look(snapshot(62, members=members, at=without, rejoin=rejoin), 40.0 if rests else 4.5)
        assert (story.state.phase is agreement.Phase.RESTING) is rests, (rejoin, members)


@pytest.mark.parametrize(
    ("what", "alive", "seen", "first_saw_s", "now", "expected"),
    [
        ("its beat names this view", True, beat(35, "b", 30), 0, 1, "ack"),
        ("it is alive and has not acknowledged", True, beat(35, "b", 29), 0, 99, None),
        ("it resigned and its key is gone", False, beat(35, "b", 0, resigned=True), 0, 1, "resigned"),
        ("it resigned but its key is there again", True, beat(35, "b", 0, resigned=True), 0, 1, None),
        ("its key is gone and it never confirmed", False, None, 0, 1, "time"),
        ("its key is gone, and its beat was seen too lately", False, beat(35, "b", 29), 10, 17.2, None),
        ("its key is gone, and VL + G have passed since", False, beat(35, "b", 29), 10, 17.3, "time"),
    ],
)
def test_who_is_past(what, alive, seen, first_saw_s, now, expected):
    """Rule 5, a row a case."""
    state = views.replace(start(), epoch=30, revisions=((20, 0.0), (35, float(first_saw_s))))
    snap = snapshot(35, members={"b": B} if alive else {}, beats={B: seen} if seen else {})
    assert past.verdict(state, snap, ("b", B), now) == expected, what


def test_who_acted_before_the_first_view_is_past_after_the_wait():
    """The first view of a generation names an unknown elder, so that even an emptied etcd cannot shorten a gap (rule 9)."""
    story = Story(start())
    story.look(snapshot(5), 0.0)
    story.feed(agreement.Tick(), 0.0)
    story.feed(agreement.Joined(A), 0.0)
    story.look(snapshot(10, members={"a": A}), 0.1)
    story.look(snapshot(11, members={"a": A}), 1.2)
    (proposed,) = story.of(agreement.Propose)
    assert proposed.view.elders == (agreement.UNKNOWN,)
    agreed = (12, proposed.view)
    acked = {A: beat(13, "a", 12)}
    story.look(snapshot(13, members={"a": A}, at=agreed, beats=acked), 2.0)
    story.look(snapshot(14, members={"a": A}, at=agreed, beats=acked), 2.0 + SETTINGS.silence_s - 0.1)
    assert story.of(agreement.Settle) == []
    story.look(snapshot(15, members={"a": A}, at=agreed, beats=acked), 2.0 + SETTINGS.silence_s)
    assert story.of(agreement.Settle) == [agreement.Settle(12, {"a": "ack"})]


def test_etcd_that_went_back_ends_the_incarnation_and_starts_a_generation():
    """Rule 9: told by a write; a read from the past is passed over, since a paused leader can answer one."""
    story = member(now=0.0, others={"b": B})
    story.feed(agreement.Confirmed(A, 30, 1.0, 1.0), 1.0)
    story.look(snapshot(20, members={"a": A}), 1.5)
    assert agreement.has_authority(story.state, 1.6, 1.6), "an old read is no restored etcd"
    story.feed(agreement.Denied("confirm", A, revision=21, floor=30, cluster_id=1), 2.0)
    assert story.state.phase is agreement.Phase.STOPPING
    assert not agreement.has_authority(story.state, 2.0, 2.0)
    assert story.state.generation == 1

    story = member(now=0.0)
    story.look(snapshot(99, members={"a": A}, cluster_id=2), 1.0)
    assert (story.state.phase, story.state.generation) == (agreement.Phase.STOPPING, 1)


def test_epochs_order_by_generation_before_revision():
    assert agreement.epoch_of(1, 3) > agreement.epoch_of(0, 1 << 39)
    assert agreement.revision_of(agreement.epoch_of(7, 1234)) == 1234


def test_a_node_whose_confirms_fail_lets_its_lease_run_out():
    story = member(now=0.0)
    story.feed(agreement.Confirmed(A, 30, 0.0, 0.0), 0.0)
    seen = []
    for tick in range(1, 200):
        now = tick * 0.1
        for effect in story.feed(agreement.Tick(), now):
            if isinstance(effect, agreement.KeepAlive):
                seen.append(now)
            if isinstance(effect, agreement.KeepAlive | agreement.Confirm | agreement.Look):
                story.feed(agreement.Failed(effect.kind), now)
    assert seen and max(seen) < SETTINGS.view_lease_s


def test_a_drain_gives_everything_up_before_it_leaves():
    story = member(now=0.0, others={"b": B})
    story.feed(agreement.Drain(), 1.0)
    assert agreement.Weigh() in story.feed(agreement.Tick(), 1.0)
    story.feed(agreement.Done("weigh"), 1.1)
    weighed = snapshot(40, members={"a": A, "b": B}, at=story.agreed)
    weighed.members["a"] = agreement.SeenMember(A, 1, value(weight=0.0))
    story.look(weighed, 1.2)
    assert story.of(agreement.Propose)[-1].view.members["a"].weight == 0
    drained = (41, view({"a": (A, 0.0), "b": (B, 1.0)}, previous=30))
    after = snapshot(41, members={"a": A, "b": B}, at=drained)
    after.members["a"] = agreement.SeenMember(A, 1, value(weight=0.0))
    story.look(after, 1.4)
    story.feed(agreement.Tick(), 1.5)
    assert story.of(agreement.Leave) == [], "what it lost is not stopped yet"
    story.feed(agreement.Applied(41), 2.0)
    story.feed(agreement.Tick(), 2.1)
    assert story.of(agreement.Leave) == [agreement.Leave(A, 41)]
    story.feed(agreement.Done("leave"), 2.2)
    assert story.state.phase is agreement.Phase.LEFT


def test_a_member_with_other_settings_is_never_listed_and_is_told_why():
    other = value(fingerprint={"ring": "xxh3-64/8"})
    state = agreement.State(me="c", value=other, settings=SETTINGS)
    snap = snapshot(30, members={"a": A}, at=(30, view({"a": (A, 1.0)})))
    assert "xxh3-64/4" in (views.refused(state, snap) or "")
    gone = snapshot(31, members={}, at=(30, view({"a": (A, 1.0)})))
    assert views.refused(state, gone) is None, "nobody of the old settings is left"

    story = member(now=0.0)
    snap = snapshot(40, members={"a": A, "c": 35}, at=story.agreed)
    snap.members["c"] = agreement.SeenMember(35, 1, other)
    story.look(snap, 1.0)
    story.look(snap, 3.0)
    assert story.of(agreement.Propose) == []


def test_beats_that_nobody_names_are_removed_with_the_next_view():
    story = member(now=0.0, others={"b": B})
    stale = {3: beat(4, "z", 2, resigned=True), A: beat(31, "a", 30), B: beat(32, "b", 30)}
    story.look(snapshot(40, members={"a": A}, at=story.agreed, beats=stale), 1.0)
    assert story.of(agreement.Propose)[-1].drop_beats == (3,)


def test_an_override_counts_only_in_a_view_and_only_for_a_member():
    agreed = view({"a": (A, 1.0), "b": (B, 1.0)}, overrides={"x.example": "b", "y.example": "gone"})
    held = placement.Placement.of(agreed, 30)
    assert held.owner("x.example") == "b"
    assert held.owner("y.example") == held.ring.owner("y.example")


def test_a_state_that_contradicts_itself_is_a_bug():
    with pytest.raises(errors.InvalidTransition):
        views.check(views.replace(start(), deadline_s=1.0))


def test_a_confirm_by_another_etcd_or_one_that_went_back_gives_no_authority():
    """Rule 9: a backup that still holds our key and view would confirm us, and must not."""
    for revision, cluster_id in ((25, 1), (99, 2)):
        story = member(now=0.0, others={"b": B})
        story.feed(agreement.Confirmed(A, 30, 1.0, 1.0, revision, 30, cluster_id), 1.0)
        assert not agreement.has_authority(story.state, 1.1, 1.1)
        assert (story.state.phase, story.state.generation) == (agreement.Phase.STOPPING, 1)


def test_a_view_that_was_wiped_starts_a_generation_that_waits_for_the_unknown():
    """Keys deleted from a living etcd: a member that is cut off may still have authority, and no elder names it."""
    story = member(now=0.0, others={"b": B})
    story.look(snapshot(60, members={}), 2.0)
    assert (story.state.phase, story.state.generation) == (agreement.Phase.STOPPING, 1)
    story.feed(agreement.Stopped(A), 2.0)
    story.feed(agreement.Tick(), 2.0)
    story.feed(agreement.Done("resign"), 2.1)
    story.look(snapshot(61, members={}), 2.2)
    story.feed(agreement.Tick(), 2.3)
    story.feed(agreement.Joined(62), 2.4)
    story.look(snapshot(62, members={"a": 62}), 2.5)
    story.look(snapshot(62, members={"a": 62}), 3.6)
    proposed = story.of(agreement.Propose)[-1].view
    assert (proposed.generation, proposed.previous, proposed.elders) == (1, 0, (agreement.UNKNOWN,))
    agreed = (63, proposed)
    acked = {62: beat(64, "a", agreement.epoch_of(1, 63))}
    story.look(snapshot(64, members={"a": 62}, at=agreed, beats=acked), 4.0)
    story.look(snapshot(65, members={"a": 62}, at=agreed, beats=acked), 4.0 + SETTINGS.silence_s - 0.1)
    assert story.of(agreement.Settle) == []
    story.look(snapshot(66, members={"a": 62}, at=agreed, beats=acked), 4.0 + SETTINGS.silence_s)
    assert len(story.of(agreement.Settle)) == 1


def test_reads_that_stay_behind_show_a_restored_etcd():
    story = member(now=0.0)
    for now in (1.0, 2.0, 3.0):
        story.look(snapshot(20, members={"a": A}), now)
        assert story.state.phase is agreement.Phase.MEMBER
    story.look(snapshot(20, members={"a": A}), 4.1)
    assert story.state.generation == 1


def test_a_founded_cluster_does_not_wait_for_the_unknown():
    """Who has just made an empty store knows that nobody has acted before, and says so with a view of nobody."""
    story = Story(start())
    founded = (3, view({}))
    story.look(snapshot(5, at=founded), 0.0)
    story.feed(agreement.Tick(), 0.0)
    story.feed(agreement.Joined(A), 0.0)
    story.look(snapshot(10, members={"a": A}, at=founded), 0.1)
    story.look(snapshot(11, members={"a": A}, at=founded), 1.2)
    (proposed,) = story.of(agreement.Propose)
    assert (proposed.view.elders, proposed.view.previous) == ((), 3)
    agreed = (12, proposed.view)
    story.look(snapshot(13, members={"a": A}, at=agreed, beats={A: beat(13, "a", 12)}), 1.3)
    assert story.of(agreement.Settle)[-1] == agreement.Settle(12, {"a": "ack"})


def test_transfers_on_kept_sites_outlive_a_change_of_view_but_not_the_deadline():
    story = member(now=0.0, others={"b": B})
    story.feed(agreement.Confirmed(A, 30, 1.0, 1.0), 1.0)
    newer = (50, view({"a": (A, 1.0)}, previous=30, elders=(("a", A), ("b", B))))
    story.look(snapshot(50, members={"a": A}, at=newer), 2.0)
    assert not agreement.has_authority(story.state, 2.0, 2.0)
    assert agreement.may_transfer(story.state, 5.9, 5.9)
    assert not agreement.may_transfer(story.state, 6.0, 6.0)
    story.feed(agreement.Gone(A), 3.0)
    assert not agreement.may_transfer(story.state, 3.0, 3.0)


def test_a_late_refusal_of_an_earlier_incarnation_is_nobodys_business():
    story = member(now=0.0)
    story.feed(agreement.Denied("confirm", A - 1, revision=21, floor=30, cluster_id=1), 1.0)
    assert (story.state.phase, story.state.generation) == (agreement.Phase.MEMBER, 0)


def test_a_restored_etcd_is_one_generation_whoever_tells():
    """A write tells first, the read after it must not count again."""
    story = member(now=0.0)
    story.feed(agreement.Denied("confirm", A, revision=21, floor=30, cluster_id=2), 1.0)
    story.look(snapshot(22, members={}, cluster_id=2), 1.1)
    story.feed(agreement.Denied("propose", A, revision=21, floor=30, cluster_id=2), 1.2)
    assert story.state.generation == 1


def test_tenures_beyond_our_view_show_a_lost_etcd_only_if_the_view_still_stands():
    """The store's word alone may be a view on its way to us; with a confirm sent after it, it is not (rule 9)."""
    later = agreement.epoch_of(2, 500)
    story = member(now=0.0)
    story.feed(agreement.Outdated(later), 2.0)
    story.feed(agreement.Confirmed(A, 30, sent_s=1.9, sent_wall_s=1.9, revision=31, floor=30, cluster_id=1), 2.1)
    assert story.state.generation == 0, "sent before the store spoke"
    story.feed(agreement.Confirmed(A, 30, sent_s=2.2, sent_wall_s=2.2, revision=32, floor=31, cluster_id=1), 2.3)
    assert (story.state.phase, story.state.generation) == (agreement.Phase.STOPPING, 3)

    story = member(now=0.0, others={"b": B})
    story.feed(agreement.Outdated(agreement.epoch_of(0, 50)), 2.0)
    newer = (50, view({"a": (A, 1.0)}, previous=30))
    story.look(snapshot(50, members={"a": A}, at=newer), 2.1)
    story.feed(agreement.Confirmed(A, 50, sent_s=2.2, sent_wall_s=2.2), 2.3)
    assert agreement.has_authority(story.state, 2.4, 2.4)


def test_an_older_view_at_a_later_revision_is_a_restored_etcd():
    story = member(now=0.0, at_revision=95)
    story.look(snapshot(150, members={"a": A}, at=(80, view({"a": (A, 1.0)}))), 1.0)
    assert (story.state.phase, story.state.generation) == (agreement.Phase.STOPPING, 1)


def test_a_node_told_to_leave_while_it_joins_takes_its_key_back():
    story = Story(start())
    story.look(snapshot(5), 0.0)
    assert agreement.Join() in story.feed(agreement.Tick(), 0.0)
    story.feed(agreement.Drain(), 0.1)
    story.feed(agreement.Tick(), 0.2)
    assert story.state.phase is agreement.Phase.OUT, "the join may still succeed"
    story.feed(agreement.Joined(A), 0.3)
    assert agreement.Weigh() in story.feed(agreement.Tick(), 0.4)

    story = Story(start())
    story.look(snapshot(5), 0.0)
    story.feed(agreement.Drain(), 0.1)
    story.feed(agreement.Tick(), 0.2)
    assert story.state.phase is agreement.Phase.LEFT
    assert agreement.Join() not in story.effects


def test_a_node_of_weight_zero_holds_no_override():
    held = placement.Placement.of(view({"a": (A, 0.0), "b": (B, 1.0)}, overrides={"x.example": "a"}), 30)
    assert held.owner("x.example") == "b"
