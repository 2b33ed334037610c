"""The owner's half of the protocol, one claim at a time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node import ownership
from shared import agreement, errors, records
from tests.scenarios.world import record_of

FINGERPRINT = {"ring": "xxh3-64/8"}
SILENCE_S = 7.26
DELAY_S = 1.0
SITES = [f"site{i}.example" for i in range(40)]


def view(members, *, previous=0, overrides=None):
    listed = {
        node: records.Member(incarnation=inc, weight=weight, address="") for node, (inc, weight) in members.items()
    }
    return records.View(members=listed, fingerprint=FINGERPRINT, previous=previous, overrides=overrides or {})


def adopt(*views, whole=True, incarnation=1):
    return agreement.Adopt(tuple(views), whole, incarnation)


def owner():
    return ownership.Ownership("a", silence_s=SILENCE_S, delay_min_s=DELAY_S)


def of(effects, kind):
    return [effect for effect in effects if isinstance(effect, kind)]


def answer(site, *, owned_by=None):
    return record_of(site, owned_by, 5)


def working(sites=SITES, *, overrides=None):
    """Node a alone since epoch 10, everything claimed and due."""
    me = owner()
    me.adopted(0.0, adopt((10, view({"a": (1, 1.0)}, overrides=overrides)), whole=False))
    me.found(sites)
    (claim,) = of(me.settled(1.0, agreement.Settle(10, {})), ownership.Claim)
    for site in claim.sites:
        me.claimed(2.0, site, me.claim_epoch(site), answer(site))
    return me


def two(previous=10, inc_b=2, **kwargs):
    return view({"a": (1, 1.0), "b": (inc_b, 1.0)}, previous=previous, **kwargs)


def test_a_gained_site_waits_for_the_earlier_owners_then_a_full_delay():
    me = owner()
    effects = me.adopted(0.0, adopt((10, view({"a": (1, 1.0)})), whole=False))
    assert of(effects, ownership.ReadArcs)
    assert of(effects, ownership.Acknowledge) == [ownership.Acknowledge(10)]
    assert of(me.found(["x.example"]), ownership.Claim) == []
    (claim,) = of(me.settled(5.0, agreement.Settle(10, {"b": "ack"})), ownership.Claim)
    assert claim == ownership.Claim(("x.example",))
    effects = me.claimed(6.0, "x.example", 10, answer("x.example", owned_by="b"))
    (moved,) = of(effects, ownership.Moved)
    assert (moved.settled_by, moved.held.tenure) == ("ack", 10)
    (ready,) = of(effects, ownership.Ready)
    assert ready.at_s == pytest.approx(6.0 + DELAY_S * agreement.SLACK)
    assert me.start(ready.at_s - 0.001, "x.example") is None
    assert me.start(ready.at_s, "x.example") is not None


def test_silence_of_an_earlier_owner_costs_the_view_lease_and_the_wire():
    me = owner()
    me.adopted(0.0, adopt((10, view({"a": (1, 1.0)})), whole=False))
    me.found(["x.example"])
    assert of(me.ticked(SILENCE_S - 0.01), ownership.Claim) == []
    assert of(me.ticked(SILENCE_S), ownership.Claim)


def test_a_kept_site_keeps_its_state_and_a_lost_one_is_gone_at_once():
    me = working()
    me.adopted(3.0, adopt((20, two())))
    kept = [site for site in SITES if me.owner_of(site) == "a"]
    lost = [site for site in SITES if me.owner_of(site) == "b"]
    assert kept and lost
    assert set(me.sites) == set(kept)
    assert all(me.owns(site, 10) for site in kept)
    assert not any(me.owns(site, 10) for site in lost)


def test_the_ack_waits_for_what_is_in_flight_on_a_lost_site():
    me = working()
    two_nodes = two()
    lost = next(site for site in SITES if ownership.Placement.of(two_nodes, 20).owner(site) == "b")
    held = me.start(10.0, lost)
    effects = me.adopted(10.0, adopt((20, two_nodes)))
    assert of(effects, ownership.Abandon) == [ownership.Abandon((lost,))]
    assert of(effects, ownership.Acknowledge) == []
    assert not me.owns(lost, 10)
    effects = me.finished(11.0, held, None)
    assert of(effects, ownership.Acknowledge) == [ownership.Acknowledge(20)]


def test_a_site_that_leaves_and_returns_waits_as_gained():
    """Rule 4: kept means owned in every view; there and back in two views is a gain."""
    me = working()
    back = view({"a": (1, 1.0)}, previous=20)
    me.adopted(3.0, adopt((20, two()), (30, back)))
    away = [site for site in SITES if ownership.Placement.of(two(), 20).owner(site) == "b"]
    assert set(away).isdisjoint(me.sites)
    me.found(away)
    assert {me.sites[site].phase for site in away} == {ownership.Phase.WAITING}
    kept = set(SITES) - set(away)
    assert all(me.owns(site, 10) for site in kept)


def test_views_that_are_unknown_keep_nothing():
    me = working()
    effects = me.adopted(3.0, adopt((30, view({"a": (1, 1.0)}, previous=20)), whole=False))
    assert me.sites == {}
    assert of(effects, ownership.ReadArcs)


def test_another_incarnation_of_the_same_id_owns_nothing_of_the_first():
    me = working()
    me.adopted(3.0, adopt((30, view({"a": (9, 1.0)}, previous=10))))
    assert me.sites == {}
    assert of(me.found(SITES), ownership.Claim) == []
    assert me.sites == {}


def test_a_lost_incarnation_says_stopped_only_when_nothing_is_on():
    me = working()
    held = me.start(10.0, SITES[0])
    effects = me.stop(1)
    assert of(effects, ownership.Abandon) == [ownership.Abandon((SITES[0],))]
    assert of(effects, ownership.Stopped) == []
    assert of(me.finished(11.0, held, None), ownership.Stopped) == [ownership.Stopped(1)]
    assert of(working().stop(1), ownership.Stopped) == [ownership.Stopped(1)]


def test_an_override_wins_over_the_ring_and_its_end_is_a_move():
    site = next(site for site in SITES if ownership.Placement.of(two(), 20).owner(site) == "b")
    me = owner()
    me.adopted(0.0, adopt((20, two(previous=0, overrides={site: "a"})), whole=False))
    me.found([site])
    assert site in me.sites
    me.adopted(1.0, adopt((30, two(previous=20))))
    assert site not in me.sites
    effects = me.adopted(2.0, adopt((40, two(previous=30, overrides={site: "a"}))))
    assert of(effects, ownership.ReadArcs)[0].overridden == (site,)


@pytest.mark.parametrize(
    ("owner_before", "members", "expected"),
    [
        ("b", {"a": (1, 1.0), "b": (2, 1.0)}, "joined"),
        ("b", {"a": (1, 1.0), "b": (2, 0.0)}, "drained"),
        ("b", {"a": (1, 1.0)}, "lease_lost"),
        ("a", {"a": (1, 1.0)}, "restarted"),
    ],
)
def test_the_cause_of_a_move(owner_before, members, expected):
    me = owner()
    me.adopted(0.0, adopt((10, view(members)), whole=False))
    site = next(site for site in SITES if me.owner_of(site) == "a")
    me.found([site])
    me.settled(1.0, agreement.Settle(10, {}))
    (moved,) = of(me.claimed(2.0, site, 10, answer(site, owned_by=owner_before)), ownership.Moved)
    assert moved.cause == expected


def test_a_member_that_left_with_weight_zero_was_drained():
    me = owner()
    me.adopted(0.0, adopt((10, view({"a": (1, 1.0), "b": (2, 0.0)})), whole=False))
    me.adopted(1.0, adopt((20, view({"a": (1, 1.0)}, previous=10))))
    me.found([SITES[0]])
    me.settled(2.0, agreement.Settle(20, {}))
    (moved,) = of(me.claimed(3.0, SITES[0], 20, answer(SITES[0], owned_by="b")), ownership.Moved)
    assert moved.cause == "drained"


def test_a_newer_tenure_in_the_store_sends_the_site_back_to_waiting():
    me = working()
    me.found([SITES[0]])
    me.claimed(5.0, SITES[0], 10, None)
    assert me.sites[SITES[0]].phase is ownership.Phase.WAITING
    assert not me.owns(SITES[0], 10)


def test_a_fenced_site_that_is_still_ours_is_gained_anew():
    """A commit refused says that a newer tenure was there; whether the site is ours the view says."""
    me = working()
    held = me.start(10.0, SITES[0])
    effects = me.fenced(held)
    assert of(effects, ownership.Claim) == [ownership.Claim((SITES[0],))]
    assert me.sites[SITES[0]] is not held
    assert not me.owns(SITES[0], 10)


def test_a_claim_is_made_under_the_view_held_when_it_is_sent():
    """An old question that is asked late must not bring an old tenure."""
    me = working()
    me.found([SITES[0]])
    assert me.claim_epoch(SITES[0]) == 10, "a refresh is under the tenure that the site has"
    me.adopted(3.0, adopt((20, two()), (30, view({"a": (1, 1.0)}, previous=20))))
    away = next(site for site in SITES if ownership.Placement.of(two(), 20).owner(site) == "b")
    me.found([away])
    assert me.claim_epoch(away) is None, "it waits"
    me.settled(4.0, agreement.Settle(30, {}))
    assert me.claim_epoch(away) == 30
    assert me.claim_epoch("elsewhere.example") is None


def test_a_refresh_keeps_the_running_number_and_a_claim_under_another_tenure_is_a_bug():
    me = working()
    me.sites[SITES[0]].n = 7
    me.found([SITES[0]])
    me.claimed(5.0, SITES[0], 10, answer(SITES[0]))
    assert me.sites[SITES[0]].n == 7
    me.found([SITES[0]])
    with pytest.raises(errors.InvalidTransition):
        me.claimed(6.0, SITES[0], 11, answer(SITES[0]))


def test_what_was_queued_while_a_claim_was_on_its_way_is_read_again():
    """A hint that comes between the store's answer and its arrival must not be lost with it."""
    me = owner()
    me.adopted(0.0, adopt((10, view({"a": (1, 1.0)})), whole=False))
    me.found(["x.example"])
    me.settled(1.0, agreement.Settle(10, {}))
    me.found(["x.example"])
    effects = me.claimed(2.0, "x.example", 10, answer("x.example"))
    assert of(effects, ownership.Claim) == [ownership.Claim(("x.example",))]
    assert of(me.claimed(3.0, "x.example", 10, answer("x.example")), ownership.Claim) == []


def test_a_late_answer_for_a_site_that_has_moved_on_changes_nothing():
    me = working()
    me.found([SITES[0]])
    me.stop(1)
    assert me.claimed(5.0, SITES[0], 10, answer(SITES[0])) == []
    assert me.sites == {}


@settings(deadline=None)
@given(st.lists(st.sampled_from(["both", "alone", "gone", "back"]), min_size=1, max_size=8), st.data())
def test_a_site_is_held_only_while_every_view_since_its_gain_gave_it_to_us(steps, data):
    """Against a model that remembers all views: tenure, ack and ownership agree after any run of views."""
    me = owner()
    history = []
    epoch = 0
    for number, kind in enumerate(steps):
        epoch += 10
        members = {
            "both": {"a": (1, 1.0), "b": (2, 1.0)},
            "alone": {"a": (1, 1.0)},
            "gone": {"b": (2, 1.0)},
            "back": {"a": (1, 1.0), "c": (3, 2.0)},
        }[kind]
        agreed = view(members, previous=epoch - 10)
        history.append((epoch, agreed))
        me.adopted(float(number), adopt((epoch, agreed), whole=number > 0))
        me.found(SITES)
        if data.draw(st.booleans()):
            for claim in of(me.settled(number + 0.5, agreement.Settle(epoch, {})), ownership.Claim):
                for site in claim.sites:
                    me.claimed(number + 0.6, site, me.claim_epoch(site), answer(site))
        for site in SITES:
            mine = [ownership.Placement.of(past, at).owner(site) == "a" for at, past in history]
            assert (site in me.sites) == mine[-1]
            held = me.sites.get(site)
            if held and held.tenure:
                since = [at for at, _ in history].index(held.tenure)
                assert all(mine[since:]), "claimed under a view, and lost since"
    assert me.applied == epoch
