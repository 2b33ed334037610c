"""The ring against the articles' own answers, and against a ring that is too simple to be wrong."""

import hashlib
import json
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import xxhash
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shared import errors, keys, ring

# A busy machine is no counter-example.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
VECTORS = Path(__file__).parent / "vectors"
SIZES = {"xxh3-64": 2**64, "sha1-64": 2**64, "md5-32": 2**32}
HASHES = {
    "xxh3-64": lambda key: xxhash.xxh3_64(key.encode()).intdigest(),
    "sha1-64": lambda key: int(hashlib.sha1(key.encode()).hexdigest()[:16], 16),
    "md5-32": lambda key: int(hashlib.md5(key.encode()).hexdigest()[:8], 16),
}

algorithms = st.sampled_from(ring.ALGORITHMS)
names = st.sampled_from([f"n{i}" for i in range(1, 9)])
weightings = st.dictionaries(names, st.sampled_from([0, 0.01, 0.5, 1, 1.0, 2]), max_size=6)


def build(weights, algorithm="xxh3-64", vnodes=16):
    return ring.Ring.build(weights, algorithm=algorithm, vnodes=vnodes)


def plain(weights, algorithm, vnodes, key):
    """The owner of a position by a ring written out in full."""
    owners = {}
    nodes = list(weights) if algorithm == "md5-32" else sorted(weights, reverse=True)
    for node in nodes:
        count = max(1, round(vnodes * weights[node])) if weights[node] else 0
        for i in range(count):
            owners[HASHES[algorithm](f"{node}#{i}")] = node
    points = sorted(owners)
    if not points:
        return None
    bisect = bisect_right if algorithm == "md5-32" else bisect_left
    return owners[points[bisect(points, key) % len(points)]]


def probes(algorithm, *rings):
    """Positions at and beside every point, the ends of the circle, and some between."""
    size = SIZES[algorithm]
    near = {0, 1, size // 2, size - 2, size - 1}
    for each in rings:
        for node, bounds in each.hashed.items():
            near.update(HASHES[algorithm](f"{node}#{i}") for i in range(len(bounds)))
    around = {(point + step) % size for point in near for step in (-1, 0, 1)}
    return sorted(around | {HASHES[algorithm](f"probe {i}") for i in range(50)})


# --- the articles --------------------------------------------------------------------------------------------


@pytest.fixture(params=["md5_32", "sha1_64"])
def vectors(request):
    return json.loads((VECTORS / f"ring_{request.param}.json").read_text()), request.param.replace("_", "-")


def test_positions_are_the_articles(vectors):
    expected, algorithm = vectors
    for key, position in expected["positions"].items():
        assert ring.position(algorithm, key) == int(position)


@pytest.mark.parametrize("workers", [4, 5])
def test_every_one_of_2000_hosts_goes_to_the_articles_worker(vectors, workers):
    expected, algorithm = vectors
    circle = build({f"worker-{i}": 1.0 for i in range(workers)}, algorithm, expected["vnodes"])
    owners = "".join(circle.owner(f"site-{i}.example.com")[-1] for i in range(2000))
    assert owners == expected[f"owner_index_{workers}_workers"]
    if workers == 4:
        assert {f"worker-{index}": count for index, count in Counter(owners).items()} == expected["counts_4"]


def moved(algorithm, before, after, vnodes):
    old, new = ({f"worker-{i}": 1.0 for i in range(workers)} for workers in (before, after))
    old, new = build(old, algorithm, vnodes), build(new, algorithm, vnodes)
    hosts = [f"site-{i}.example.com" for i in range(2000)]
    return sum(old.owner(host) != new.owner(host) for host in hosts) / len(hosts)


def test_a_fifth_worker_moves_the_articles_fraction(vectors):
    expected, algorithm = vectors
    assert moved(algorithm, 4, 5, expected["vnodes"]) == expected["moved_fraction_4_to_5"]


def test_with_one_vnode_a_leaving_worker_moves_nearly_half():
    assert moved("md5-32", 4, 3, 1) == 0.444


# --- one owner -----------------------------------------------------------------------------------------------


@PATIENT
@given(weightings, algorithms)
def test_every_position_has_exactly_the_owner_of_the_plain_ring(weights, algorithm):
    circle = build(weights, algorithm, 4)
    for position in probes(algorithm, circle):
        assert circle.owner_at(position) == plain(weights, algorithm, 4, position)


@PATIENT
@given(weightings, algorithms)
def test_the_arcs_tile_the_circle(weights, algorithm):
    circle = build(weights, algorithm, 4)
    arcs = circle.arcs()
    if not circle.hashed:
        assert arcs == []
        return
    for node in [*weights, "stranger"]:
        assert circle.arcs_of(node) == [arc for arc in arcs if arc.target == node]
    first = 0 if algorithm == "md5-32" else -1
    assert arcs[0].start == first
    assert arcs[-1].end == first + SIZES[algorithm]
    assert all(left.end == right.start and left.target != right.target for left, right in pairwise(arcs))
    assert all(arc.start < arc.end and arc.source is None for arc in arcs)
    for position in probes(algorithm, circle):
        assert [arc.target for arc in arcs if circle.holds(arc, position)] == [circle.owner_at(position)]


@PATIENT
@given(weightings, algorithms)
def test_shares_are_the_sizes_of_the_arcs(weights, algorithm):
    circle = build(weights, algorithm, 8)
    sizes = Counter()
    for arc in circle.arcs():
        sizes[arc.target] += arc.end - arc.start
    for node in [*weights, "stranger"]:
        assert circle.share(node) == pytest.approx(sizes[node] / SIZES[algorithm])


@pytest.mark.parametrize("weight", [0.5, 2])
@pytest.mark.parametrize("algorithm", ring.ALGORITHMS)
def test_a_weight_scales_the_share(algorithm, weight):
    circle = build({"a": 1.0, "b": 1.0, "c": weight}, algorithm, 1000)
    assert circle.share("c") == pytest.approx(weight / (2 + weight), rel=0.15)


@pytest.mark.parametrize(("weight", "points"), [(0, 0), (0.001, 1), (0.5, 5), (1, 10), (1.26, 13), (2, 20), (0.25, 2)])
def test_points_are_vnodes_times_weight_rounded_and_at_least_one(weight, points):
    assert len(build({"a": weight}, vnodes=10).bounds) == points


def test_nobody_owns_anything_on_an_empty_ring():
    for weights in ({}, {"a": 0}):
        assert build(weights).owner("example.com") is None
        assert build(weights).arcs() == []


@pytest.mark.parametrize(
    ("weights", "algorithm", "vnodes"),
    [
        ({"a": -1}, "xxh3-64", 1),
        ({"a": float("nan")}, "xxh3-64", 1),
        ({"a": float("inf")}, "xxh3-64", 1),
        ({"a": 1}, "crc32", 1),
        ({"a": 1}, "xxh3-64", 0),
    ],
)
def test_a_ring_of_senseless_numbers_is_refused(weights, algorithm, vnodes):
    with pytest.raises(errors.ConfigError):
        build(weights, algorithm, vnodes)


# --- points that meet ----------------------------------------------------------------------------------------

# Four nodes of six points on a circle with 16 places: many of them meet.
MEETING = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}


@pytest.fixture(params=ring.ALGORITHMS)
def narrow(request, monkeypatch):
    """An algorithm whose hash has 16 values, so that points meet all the time."""
    algorithm = request.param
    hash_of, step = HASHES[algorithm], SIZES[algorithm] // 16
    monkeypatch.setitem(ring._HASHES, algorithm, lambda key: hash_of(key.decode()) // step * step)
    monkeypatch.setitem(HASHES, algorithm, lambda key: hash_of(key) // step * step)
    return algorithm


def test_points_that_meet_go_to_the_smallest_id_or_by_the_given_order(narrow):
    backwards = dict(reversed(MEETING.items()))
    for weights in (MEETING, backwards):
        circle = build(weights, narrow, 6)
        assert circle.meets
        for position in probes(narrow, circle):
            assert circle.owner_at(position) == plain(weights, narrow, 6, position)
    same = build(MEETING, narrow, 6).owners == build(backwards, narrow, 6).owners
    assert same is (narrow != "md5-32")


def test_where_points_meet_a_leaving_node_gives_them_back(narrow):
    full = build(MEETING, narrow, 6)
    for node in MEETING:
        rest = {name: weight for name, weight in MEETING.items() if name != node}
        less = full.with_weights(rest)
        assert less == build(rest, narrow, 6)
        assert less.with_weights(MEETING).owners == full.owners or narrow == "md5-32"
        check_moved(narrow, full, less)
        check_moved(narrow, less, full)


def test_where_points_meet_a_new_order_of_the_nodes_moves_what_it_changes(narrow):
    old, backwards = build(MEETING, narrow, 6), dict(reversed(MEETING.items()))
    new = old.with_weights(backwards)
    assert new.owners == build(backwards, narrow, 6).owners
    assert bool(check_moved(narrow, old, new)) is (narrow == "md5-32")


def test_points_that_begin_to_meet_are_settled_as_if_built_from_nothing(narrow):
    weights = {}
    circle = build(weights, narrow, 1)
    for i in range(12):
        weights = {f"n{i}": 1.0, **weights}
        before, circle = circle, circle.with_weights(weights)
        assert (list(circle.bounds), circle.owners) == (sorted(circle.owners), build(weights, narrow, 1).owners)
        check_moved(narrow, before, circle)
    assert circle.meets


# --- changes -------------------------------------------------------------------------------------------------


def check_moved(algorithm, old, new):
    """The moved arcs tile exactly the difference: for every position, in one arc iff its owner differs."""
    arcs = ring.moved_arcs(old, new)
    assert all(arc.start < arc.end for arc in arcs)
    assert all(left.end <= right.start for left, right in pairwise(arcs))
    assert not any(left[1:] == (right.start, right.source, right.target) for left, right in pairwise(arcs))
    for position in probes(algorithm, old, new):
        source, target = old.owner_at(position), new.owner_at(position)
        expected = [(source, target)] if source != target else []
        assert [(arc.source, arc.target) for arc in arcs if old.holds(arc, position)] == expected
    return arcs


@PATIENT
@given(weightings, weightings, algorithms)
def test_moved_arcs_are_exactly_the_difference(before, after, algorithm):
    check_moved(algorithm, build(before, algorithm, 4), build(after, algorithm, 4))


@PATIENT
@given(weightings, weightings, weightings, algorithms)
def test_a_ring_made_from_another_is_the_ring_built_from_nothing(first, second, third, algorithm):
    chained = build(first, algorithm, 4).with_weights(second).with_weights(third)
    fresh = build(third, algorithm, 4)
    assert chained == fresh
    assert hash(chained) == hash(fresh)
    assert (chained.bounds, chained.owners, chained.hashed) == (fresh.bounds, fresh.owners, fresh.hashed)


@PATIENT
@given(st.dictionaries(names, st.sampled_from([0.5, 1, 2]), min_size=1, max_size=6), names, algorithms)
def test_a_join_moves_sites_only_to_the_joiner(weights, joiner, algorithm):
    assume(joiner not in weights)
    old = build(weights, algorithm)
    new = old.with_weights({**weights, joiner: 1})
    arcs = ring.moved_arcs(old, new)
    assert arcs
    assert {arc.target for arc in arcs} == {joiner}
    back = ring.moved_arcs(new, old)
    assert {arc.source for arc in back} == {joiner}
    assert sum(arc.end - arc.start for arc in arcs) / SIZES[algorithm] == pytest.approx(new.share(joiner))


@pytest.mark.parametrize("algorithm", ring.ALGORITHMS)
@pytest.mark.parametrize("nodes", [4, 16])
def test_a_join_moves_about_its_fair_share(algorithm, nodes):
    weights = {f"n{i}": 1.0 for i in range(nodes)}
    old = build(weights, algorithm, 256)
    arcs = ring.moved_arcs(old, old.with_weights({**weights, "joiner": 1.0}))
    fraction = sum(arc.end - arc.start for arc in arcs) / SIZES[algorithm]
    assert fraction == pytest.approx(1 / (nodes + 1), rel=0.2)


def test_the_first_node_gains_the_whole_circle_in_one_arc():
    for algorithm in ring.ALGORITHMS:
        (arc,) = ring.moved_arcs(build({}, algorithm), build({"a": 1}, algorithm))
        assert (arc.source, arc.target, arc.end - arc.start) == (None, "a", SIZES[algorithm])


def test_rings_of_two_algorithms_are_not_compared():
    with pytest.raises(errors.ConfigError):
        ring.moved_arcs(build({"a": 1}, "md5-32"), build({"a": 1}, "sha1-64"))


@pytest.mark.parametrize("points", [1, 15, 16, 17, 64, 4096])
@pytest.mark.parametrize("algorithm", ring.ALGORITHMS)
def test_cells_of_any_size_hold_the_owners_of_the_plain_ring(algorithm, points):
    circle = build({"a": 1, "b": 1}, algorithm, points)
    bounds, owners = list(circle.bounds), circle.owners
    edges = {cell * (SIZES[algorithm] // 4096) + step for cell in range(4096) for step in (-1, 0)}
    near = {bound + step for bound in bounds for step in (-1, 0, 1)}
    for position in (position for position in edges | near if 0 <= position < SIZES[algorithm]):
        index = bisect_left(bounds, position) % len(bounds)
        assert circle.owner_at(position) == owners[bounds[index]]


def operations(work):
    """What the work called, Python's functions and C's by their names, and how often."""
    counted = Counter()

    def count(frame, event, arg):
        if event in {"call", "c_call"}:
            counted[frame.f_code.co_name if event == "call" else arg.__name__] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def test_a_change_costs_a_search_for_each_point_that_changes_however_many_there_are():
    weights = {f"n{i}": 1.0 for i in range(64)}
    old, more = build(weights, vnodes=32), {**weights, "joiner": 1.0}
    new = old.with_weights(more)
    for work, hashed, searches in (
        (lambda: old.with_weights(more), 32, 32 + 3),  # a place far off takes a second one
        (lambda: new.with_weights(weights), 0, 32),
        (lambda: ring.moved_arcs(old, new), 0, 2 * (32 + 1)),
        (lambda: new.arcs_of("joiner"), 0, 32 + 1),
    ):
        done = operations(work)
        assert (done["xxh3_64_intdigest"], done["_settled"]) == (hashed, 0)
        assert 32 <= done["bisect_left"] <= searches


# --- the site index ------------------------------------------------------------------------------------------


@PATIENT
@given(weightings, weightings, algorithms)
def test_index_ranges_hold_every_position_of_the_arcs_once(before, after, algorithm):
    old, new = build(before, algorithm, 4), build(after, algorithm, 4)
    arcs = ring.moved_arcs(old, new)
    ranges = ring.index_ranges(new, arcs)
    assert ranges == sorted(ranges)
    for shard, low, high in ranges:
        assert 0 <= low <= high < 2**48
        assert low >> 40 == high >> 40 == shard < keys.INDEX_SHARDS
    assert all(left[2] < right[1] for left, right in pairwise(ranges))
    for position in probes(algorithm, old, new):
        if any(new.holds(arc, position) for arc in arcs):
            score = ring.score(algorithm, position)
            assert [True for shard, low, high in ranges if low <= score <= high] == [True]


def test_the_whole_circle_is_every_shard_in_full():
    for algorithm in ring.ALGORITHMS:
        circle = build({"a": 1}, algorithm)
        ranges = ring.index_ranges(circle, circle.arcs())
        top = ring.score(algorithm, SIZES[algorithm] - 1)
        whole = [(shard, shard << 40, (shard << 40) + 2**40 - 1) for shard in range(256)]
        assert ranges == [*whole[:-1], (255, 255 << 40, top)]


def test_a_moved_arc_reads_little_more_than_itself():
    """P6: ranges of one join over 64 nodes cover about as much as the arcs, in few reads."""
    weights = {f"n{i}": 1.0 for i in range(64)}
    old = build(weights, vnodes=256)
    new = old.with_weights({**weights, "joiner": 1.0})
    ranges = ring.index_ranges(new, ring.moved_arcs(old, new))
    assert len(ranges) <= 256 * 2
    assert sum(high - low + 1 for _, low, high in ranges) / 2**48 == pytest.approx(new.share("joiner"), rel=0.01)


@PATIENT
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_scores_keep_the_order_of_positions_and_are_exact_as_doubles(one, other):
    for algorithm, size in SIZES.items():
        low, high = sorted((one % size, other % size))
        assert ring.score(algorithm, low) <= ring.score(algorithm, high) < 2**48
        assert int(float(ring.score(algorithm, high))) == ring.score(algorithm, high)
