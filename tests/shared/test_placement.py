"""Who owns a site in one view: overrides, then the ring; each site hashed once, and only the points that are new."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared import placement, records, ring

RING = {"ring": "xxh3-64/16"}
SITES = [f"s{number}.example" for number in range(200)]
nodes = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0.0, 0.5, 1.0]), max_size=5)
placed = st.dictionaries(st.sampled_from(SITES[:4]), st.sampled_from("abcdefgh"), max_size=4)


def view(weights, overrides=()):
    members = {node: records.Member(incarnation=1, weight=weight, address="") for node, weight in weights.items()}
    return records.View(members=members, overrides=dict(overrides), fingerprint=RING)


@pytest.fixture
def hashes(monkeypatch):
    """How often each key was hashed."""
    counted = Counter()
    hash_of = ring._HASHES["xxh3-64"]

    def count(key):
        counted[key] += 1
        return hash_of(key)

    monkeypatch.setitem(ring._HASHES, "xxh3-64", count)
    return counted


def test_a_site_is_hashed_once_a_view_however_often_it_is_asked_for(hashes):
    held = placement.Placement.of(view({"a": 1.0, "b": 1.0}), 1)
    hashes.clear()
    first = [held.owner(site) for site in SITES]
    assert hashes == {site.encode(): 1 for site in SITES}
    assert [held.owner(site) for site in SITES] == first
    assert hashes.total() == len(SITES)


def test_a_new_view_hashes_the_points_of_its_new_nodes_and_no_other(hashes):
    held = placement.Placement.of(view({f"n{number}": 1.0 for number in range(8)}), 1)
    assert hashes.total() == 8 * 16
    hashes.clear()
    joined = placement.Placement.of(view({**{f"n{number}": 1.0 for number in range(8)}, "new": 1.0}), 2, held)
    assert hashes == {f"new#{number}".encode(): 1 for number in range(16)}
    hashes.clear()
    placement.Placement.of(view({f"n{number}": 1.0 for number in range(8)}), 3, joined)
    assert hashes.total() == 0


def test_no_more_owners_are_remembered_than_there_may_be(hashes, monkeypatch):
    monkeypatch.setattr(placement, "OWNERS_MAX", 50)
    held = placement.Placement.of(view({"a": 1.0, "b": 1.0}), 1)
    owners = held.owner.__self__
    for site in SITES * 2:
        assert held.owner(site) == held.ring.owner(site)
        assert len(owners) <= 50


@settings(deadline=None)
@given(nodes, placed, nodes, placed)
def test_owners_are_those_of_this_view_and_never_those_of_the_one_before(before, pinned, after, moved):
    old = placement.Placement.of(view(before, pinned), 1)
    for site in SITES:
        old.owner(site)
    new = placement.Placement.of(view(after, moved), 2, old)
    for weights, overrides, held in ((before, pinned, old), (after, moved, new)):
        fresh = ring.Ring.build(weights, algorithm="xxh3-64", vnodes=16)
        for site in SITES:
            by_hand = overrides.get(site)
            expected = by_hand if weights.get(by_hand, 0.0) > 0 else fresh.owner(site)
            assert held.owner(site) == held.owner(site) == expected
