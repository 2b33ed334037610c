"""`crawlring simulate growth`: its etcd's counts against closed forms, its sessions, its tail, its answer, the command."""

import functools
import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from coordinator import cli, growth_costs, growth_lines, growth_sessions, growth_sites, growth_table, growth_takeover
from shared import agreement, config, errors, membership, ring

SETTINGS = config.Config()
PROTOCOL = membership.settings_of(SETTINGS.membership)
PRINT = membership.fingerprint(SETTINGS, sites_digest="growth")
CAUSES = ("drain", "join", "crash", "kill-lease")


@functools.cache
def told(nodes: int) -> growth_sessions.Told:
    return growth_sessions.measured(nodes, settings=PROTOCOL, fingerprint=PRINT, fetch_s=0.3, seed=1)


def circle(nodes: int, vnodes: int = 64) -> ring.Ring:
    weights = {f"node-{number:04}": 1.0 for number in range(nodes)}
    return ring.Ring.build(weights, algorithm="xxh3-64", vnodes=vnodes)


@functools.cache
def population(sites: int = 5_000, exponent: float = 1.05) -> growth_sites.Population:
    return growth_sites.Population(sites, sites * 100.0, exponent, "xxh3-64", 3)


@functools.cache
def line(nodes: int, **changes: object) -> growth_table.Line:
    settings = config.load(environ={}, options={"ring.vnodes": 32})
    costs = growth_costs.Costs(**changes)
    return growth_lines.line_of(nodes, circle(nodes, 32), population(), settings, costs=costs, days=30.0)


@pytest.mark.parametrize("nodes", [1, 5])
def test_a_quiet_node_looks_and_confirms_once_a_second_and_keeps_its_lease_every_fifth_of_its_ttl(nodes: int) -> None:
    quiet = told(nodes).steady
    # A tick later than asked for, at most.
    for name, every_s in (("look", 1.0), ("confirm", 1.0), ("keepalive", PROTOCOL.lease_ttl_s / 5)):
        assert nodes / (every_s + 2 * growth_sessions.TICK_S) <= quiet[name] <= nodes / every_s * 1.1
    assert quiet["look keys"] / quiet["look"] == pytest.approx(2 * nodes + 1)  # a key and a beat each, and the view
    assert "propose" not in quiet
    assert "watch events" not in quiet


def test_every_event_is_agreed_with_few_views_and_told_to_every_watcher() -> None:
    events = {event.cause: event for event in told(6).events}
    assert set(events) == set(CAUSES)
    assert {cause: event.views for cause, event in events.items()} == {
        "drain": 2,
        "join": 1,
        "crash": 1,
        "kill-lease": 1,
    }
    for event in events.values():
        assert event.cost["watched writes"] >= 2  # the member key, the view
        assert event.cost["propose"] - event.cost["denied"] <= event.views
        assert len(event.before.members) - len(event.after.members) in (-1, 0, 1)
    assert events["join"].cost["watch events"] == 6 + 5  # its own watch hears of the view, not of its join


def test_a_crash_is_seen_when_its_lease_has_run_out_and_a_killed_lease_at_once() -> None:
    events = {event.cause: event for event in told(4).events}
    crash_s = [at_s for at_s, _ in events["crash"].settled_s]
    assert PROTOCOL.lease_ttl_s * 0.8 - 0.1 <= min(crash_s) <= max(crash_s) <= PROTOCOL.lease_ttl_s + 0.8
    assert max(at_s for at_s, _ in events["kill-lease"].settled_s) < 0.3
    assert min(at_s for at_s, _ in events["join"].settled_s) > PROTOCOL.gather_s


def test_sessions_that_stand_for_several_cost_etcd_what_as_many_would() -> None:
    def costs(sessions: int) -> tuple[dict[str, float], growth_sessions.Event]:
        cluster = growth_sessions.Cluster(
            25, settings=PROTOCOL, fingerprint=PRINT, fetch_s=0.3, seed=2, sessions=sessions
        )
        cluster.begin()
        quiet = cluster.steady()
        return quiet, cluster.event("crash", quiet)

    (alone, crash), (together, crash_together) = costs(24), costs(8)
    for name in ("look", "confirm", "keepalive", "look bytes", "confirm bytes"):
        assert together[name] == pytest.approx(alone[name], rel=0.03)
    for name in ("look", "propose", "watch events"):
        assert crash_together.cost[name] == pytest.approx(crash.cost[name], rel=0.35)
    assert crash_together.settled_s[-1][0] == pytest.approx(crash.settled_s[-1][0], abs=2.2)
    assert sum(nodes for _, nodes in crash_together.settled_s) == 24


@given(exponent=some.floats(0.2, 3.0), first=some.integers(1, 3_000), more=some.integers(0, 3_000))
def test_the_sum_of_powers_is_that_of_its_terms(exponent: float, first: int, more: int) -> None:
    exact = math.fsum(rank**-exponent for rank in range(first, first + more + 1))
    assert growth_sites.power_sum(exponent, first, first + more) == pytest.approx(exact, rel=1e-8)


def test_all_urls_are_somewhere_and_the_largest_sites_are_where_the_ring_has_them() -> None:
    people = growth_sites.Population(150_000, 1e7, 1.05, "xxh3-64", 1)
    assert sum(people.heavy) + people.tail_urls == pytest.approx(1e7)
    assert people.tail_sites == 50_000
    wheel = circle(5)
    skew = growth_sites.skew(people, wheel, most=1e9)
    assert sum(skew.loads) == pytest.approx(1e7)
    assert 0 < skew.error < 0.01
    arcs = [arc for arc in wheel.arcs() if arc.target == "node-0002"]
    assert set(people.within(wheel, arcs)) == {
        people.name(rank) for rank in range(1, 100_001) if wheel.owner(people.name(rank)) == "node-0002"
    }


def test_load_is_skewed_by_the_tail_and_not_by_the_number_of_sites() -> None:
    wheel, people = circle(16, 256), population()
    skew = growth_sites.skew(people, wheel, most=1e9)
    assert 1.0 <= skew.sites < 1.3
    assert skew.urls > 1.5  # the largest site alone is a tenth of all
    capped = growth_sites.skew(people, wheel, most=100.0)
    assert capped.fetchable < skew.urls
    assert sum(capped.loads) == pytest.approx(people.reachable(100.0), rel=1e-6)
    assert growth_sites.skew(people, wheel, most=1e9).sites == skew.sites  # the same again


def test_what_moves_is_the_share_of_the_node_that_goes() -> None:
    large = circle(8)
    small = large.with_weights({node: 1.0 for node in large.weights if node != "node-0007"})
    lost, won = growth_sites.moves(large, small), growth_sites.moves(small, large)
    assert lost.fraction == pytest.approx(large.share("node-0007"))
    assert won.gains == pytest.approx({"node-0007": large.share("node-0007")})
    assert "node-0007" not in lost.gains


def test_gained_sites_are_asked_a_full_delay_after_their_claim_and_no_others() -> None:
    large = circle(4)
    small = large.with_weights({node: 1.0 for node in large.weights if node != "node-0003"})
    fingerprint = PRINT | {"ring": "xxh3-64/64"}
    cluster = growth_sessions.Cluster(4, settings=PROTOCOL, fingerprint=fingerprint, fetch_s=0.3, seed=5)
    cluster.begin()
    event = cluster.event("kill-lease", cluster.steady())
    people = population(2_000)
    arcs = [arc for arc in growth_sites.moves(large, small).arcs if arc.target == "node-0000"]
    sites, kept = (
        people.within(large, arcs),
        [site for site in map(people.name, range(1, 200)) if large.owner(site) == "node-0000"],
    )
    assert sites
    assert kept
    witness = growth_takeover.Witness(event, node="node-0000", settings=PROTOCOL, delay_s=2.0)
    session = cluster.of("node-0000")
    first = witness.run(session.heard, sites=[*sites, *kept], claims_per_s=1_000.0)
    assert set(first) == set(sites)
    settled_s = session.settled[event.epochs[1]] - event.began_s
    assert min(first.values()) >= settled_s + 2.0 * agreement.SLACK
    assert max(first.values()) <= settled_s + 2.0 * agreement.SLACK + len(sites) / 1_000.0 + 0.2


def test_a_part_is_full_between_the_sizes_around_it() -> None:
    squares = [(nodes, (nodes / 300) ** 2) for nodes in (1, 8, 64, 512)]
    assert growth_costs.full_at(squares) == pytest.approx(300)
    assert growth_costs.full_at(squares[:3]) is None
    assert growth_costs.full_at([(1, 2.0), (2, 4.0)]) == 1
    assert growth_costs.full_at([(1, 0.0), (2, 4.0)]) == 2


def test_store_operations_for_a_fetch_do_not_depend_on_the_number_of_nodes() -> None:
    lines = [line(nodes) for nodes in (1, 3, 8)]
    answer = growth_table.answered(lines, population(), costs=growth_costs.Costs(), delay_s=2.0, days=30.0)
    assert answer.store_spread < 0.05
    assert all(takeover.kept and takeover.unseen == 0 for one in lines for takeover in one.takeovers)
    assert [takeover.cause for takeover in lines[1].takeovers] == list(CAUSES)
    assert lines[2].quiet["look bytes"] > 2**2 * lines[1].quiet["look bytes"]  # all read all


def test_the_part_that_costs_most_is_the_one_that_stops_growth() -> None:
    def first(**costs: object) -> str | None:
        lines = [line(nodes, **costs) for nodes in (1, 4)]
        return growth_table.answered(
            lines, population(), costs=growth_costs.Costs(**costs), delay_s=2.0, days=30.0
        ).first

    assert first(store_ms_per_fetch=2.0) == "store CPU"
    assert first(store_ms_per_fetch=0.0, store_command_ms=0.0, etcd_look_ms=400.0) in ("etcd CPU", "etcd CPU in a join")
    assert first(dns_per_s=5.0, store_ms_per_fetch=0.0) == "DNS"


def test_a_takeover_beyond_its_bound_is_not_kept() -> None:
    takeover = line(3).takeovers[0]
    assert takeover.kept
    slow = growth_table.Takeover(
        **{name: getattr(takeover, name) for name in takeover.__struct_fields__} | {"slowest_s": takeover.bound_s + 0.1}
    )
    assert not slow.kept


@pytest.mark.parametrize("raw", [b"[]", b'{"etcd_look_ms": "much"}', b'{"strange": 1}', b'{"etcd_look_ms": -1}', b"{"])
def test_costs_that_make_no_sense_are_refused(raw: bytes) -> None:
    with pytest.raises(errors.ConfigError):
        growth_costs.read(raw)


def test_etcd_is_charged_by_the_call_and_by_the_member() -> None:
    costs = growth_costs.Costs(
        etcd_look_ms=1, etcd_look_ms_per_member=0.1, etcd_confirm_ms=2, etcd_confirm_ms_per_member=0
    )
    assert growth_costs.etcd_cores(costs, 10, Counter(look=100, confirm=50)) == pytest.approx(0.3)


def test_the_command_prints_the_same_again_and_says_where_growth_stops(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["simulate", "growth", "--nodes", "1,3", "--sites", "20000"]
    assert cli.main([*arguments, "--json"]) == cli.DONE
    first = capsys.readouterr()
    assert "3 nodes" in first.err
    document = json.loads(first.out)
    assert [size["nodes"] for size in document["sizes"]] == [1, 3]
    assert set(document["answer"]["stops"]) == {use[0] for use in document["sizes"][0]["uses"]}
    assert cli.main([*arguments, "--markdown"]) == cli.DONE
    assert "| 3 | kill-lease |" in capsys.readouterr().out


def test_the_command_reads_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "costs.json"
    file.write_text('{"store_ms_per_fetch": 40}')
    arguments = ["simulate", "growth", "--nodes", "1", "--sites", "2000", "--costs", str(file)]
    assert cli.main(arguments) == cli.DONE
    assert "Stops first: store CPU, at 1" in capsys.readouterr().out
    file.write_text("no")
    assert cli.main(arguments) == cli.USAGE


def test_sizes_grow() -> None:
    assert cli.main(["simulate", "growth", "--nodes", "4,2"]) == cli.USAGE
