"""Planned moves and frozen nodes: nothing is asked twice, nothing is asked too soon, whoever owns it."""

import signal
from pathlib import Path

import pytest

from shared import clock
from tests.cluster import claims, harness

pytestmark = pytest.mark.cluster


def test_a_join_and_a_drain_move_sites_with_no_page_asked_twice(
    tmp_path: Path, etcd: str, valkey: str, cluster: str
) -> None:
    with harness.running(tmp_path, etcd=etcd, redis=valkey, name=cluster, pages=12, environ={}) as run:
        run.start_all("n1", "n2")
        run.seed()
        run.until(lambda: run.part_done(0.25), 40, "a part is done")
        before = {node: run.held_by(node) for node in ("n1", "n2")}
        run.start_all("n3")
        run.until(lambda: run.by("n3"), 20, "the joiner asks")
        run.until(lambda: run.part_done(0.6), 20, "more is done")
        leaving, drained_ms = run.held_by("n1"), clock.wall_ms()
        began_s = harness.now_s()
        run.drain("n1")
        took_s = harness.now_s() - began_s
        claims.finish(run)
        run.drain()
        joined = [one for one in run.handoffs() if one.kind == "moved" and one.to == "n3" and one.cause == "joined"]
        assert joined
        for line in joined:
            claims.told_in_full(line, cause="joined", settled_by={"ack"})
            assert line.site in before[str(line.from_node)]
        moved = [move for move in claims.moves(run, "n1", drained_ms) if move.moved.site in leaving]
        assert {move.moved.site for move in moved} == leaving
        for move in moved:
            claims.told_in_full(move.moved, cause="drained", settled_by={"ack", "resigned"})
        assert not run.by("n1", since_s=began_s + took_s)
        assert not claims.repeated(run), "with no crash and nothing cut short, nothing is asked again"
        claims.waited_in_full(run, moved)
        ratio = claims.gaps_kept(run)
        found = claims.audited(run)
        assert found.repeats == 0
        print(f"{len(joined)} sites joined away, {len(moved)} drained away in {took_s:.1f} s, smallest gap {ratio:.3f}")


def test_a_transfer_that_outlives_its_time_is_cut_short_logged_and_made_again(
    tmp_path: Path, etcd: str, valkey: str, cluster: str
) -> None:
    """A lost site's request may finish within `stop_s`; beyond that it is reset, and the audit counts it (P3)."""
    stop_s = 1.0
    with harness.running(
        tmp_path,
        etcd=etcd,
        redis=valkey,
        name=cluster,
        site_count=9,
        pages=4,
        slow_s=4.0,
        environ={**harness.QUICK, "CRAWLRING_MEMBERSHIP__STOP_S": str(stop_s)},
    ) as run:
        run.start_all("n1", "n2")
        run.seed()
        slow = run.slow_in_flight()
        began_s = harness.now_s()
        run.drain(slow.node)
        took_s = harness.now_s() - began_s
        assert stop_s <= took_s < 4.0 - 0.5, "it neither gave up at once nor waited for the end"
        claims.finish(run)
        run.drain()
        assert slow.url in claims.repeated(run)
        cut = claims.only_aborted_repeat(run)
        ratio = claims.gaps_kept(run)
        assert claims.audited(run).repeats == cut
        print(f"left in {took_s:.1f} s (stop_s {stop_s:g}), {cut} cut short, smallest gap {ratio:.3f}")


def test_a_frozen_node_is_left_its_time_and_wakes_without_authority(
    tmp_path: Path, etcd: str, valkey: str, cluster: str
) -> None:
    """With VL and G as they come: 5 + 2.25 s after its last beat its sites may move, whatever it does later."""
    frozen_s, silence_s = 9.0, 7.25
    with harness.running(
        tmp_path,
        etcd=etcd,
        redis=valkey,
        name=cluster,
        pages=12,
        slow_s=1.5,
        environ={"CRAWLRING_MEMBERSHIP__REJOIN_S": "600"},
        options=("--lease-ttl=3",),
    ) as run:
        run.start_all("n1", "n2", "n3")
        run.seed()
        run.until(lambda: run.part_done(0.3), 40, "a part is done")
        victim = run.slow_in_flight(within_s=0.3).node
        sites = run.held_by(victim)
        child = run.nodes[victim].child
        child.signal(signal.SIGSTOP)
        stop_s, stop_ms = harness.now_s(), clock.wall_ms()
        try:
            moved = claims.taken_over(run, victim, sites, stop_ms, within_s=silence_s + 6)
            run.until(lambda: harness.now_s() >= stop_s + frozen_s, frozen_s, "it has slept")
        finally:
            child.signal(signal.SIGCONT)
        woke_s = harness.now_s()
        run.until(lambda: "incarnation.over" in run.nodes[victim].log(), 5, "it notices what it lost")
        claims.finish(run)
        assert not run.by(victim, since_s=stop_s + 0.1), "a node that sleeps, and one that has lost all, asks nothing"
        last_s = max(one.boot_s for one in run.by(victim))
        for move in moved:
            claims.told_in_full(move.moved, cause="lease_lost", settled_by={"time"})
            others = [one for one in run.to(str(move.moved.site), since_ms=stop_ms) if one.node != victim]
            # Its last beat was at most a second old when it stopped, and had to be a whole silence old here.
            assert all(one.boot_s >= stop_s - 1.2 + silence_s + run.delay_s for one in others), (move, others[0])
        claims.waited_in_full(run, moved)
        run.drain()
        ratio = claims.gaps_kept(run)
        cut = claims.only_in_flight_repeat(run, victim, stop_s)
        assert cut, "the slow page was in flight"
        claims.audited(run)
        firsts = [(move.moved.time_ms - stop_ms) / 1000 for move in moved]
        print(
            f"{len(moved)} sites claimed {min(firsts):.2f} to {max(firsts):.2f} s after it stopped, its last request "
            f"{stop_s - last_s:.2f} s before, awake for {harness.now_s() - woke_s:.1f} s, {cut} asked "
            f"again, smallest gap {ratio:.3f}"
        )
