"""A node that loses its lease, or its life, loses its sites: with all they know, and with every gap kept."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from coordinator import demo_report, local
from shared import clock
from tests.cluster import claims, harness

pytestmark = pytest.mark.cluster

SLACK_S = 6.0  # of a deadline, for a busy machine; the promise itself is in the figure that is asserted


def busiest(cluster: harness.Cluster) -> str:
    owned = cluster.owned()
    return max(owned, key=lambda node: len(owned[node]))


def back(cluster: harness.Cluster, victim: str, incarnation: int) -> bool:
    member = cluster.members().get(victim)
    return member is not None and member.incarnation != incarnation


def last_fetch_is_true(cluster: harness.Cluster, move: demo_report.Move) -> None:
    """The last fetch in the entry is one the web saw, the last or (where that was cut short) the one before."""
    assert move.moved.site is not None
    assert move.moved.last_fetch_ms is not None
    before = [one for one in cluster.to(move.moved.site) if one.wall_ms < move.moved.time_ms]
    assert any(abs(one.wall_ms - move.moved.last_fetch_ms) < 500 for one in before[-2:]), (move.moved, before[-2:])


def lease_is_lost_and_found(
    cluster: harness.Cluster, victim: str, sites: set[str], kill_s: float
) -> list[demo_report.Move]:
    """What both ways to end a lease have in common; `kill_s` is when it was."""
    assert cluster.nodes[victim].child.poll() is None
    killed_ms = clock.wall_ms() - round((clock.boot_s() - kill_s) * 1000)
    moved = claims.taken_over(cluster, victim, sites, killed_ms, within_s=12)
    for move in moved:
        claims.told_in_full(move.moved, cause="lease_lost", settled_by={"resigned", "ack"})
        if move.moved.last_fetch_ms is not None:
            last_fetch_is_true(cluster, move)
    assert sum(move.moved.pending or 0 for move in moved) > 0
    assert sum(move.moved.validators or 0 for move in moved) > 0
    assert victim not in cluster.members(), "its sites were asked by others before it was back"
    assert not cluster.by(victim, since_s=kill_s + 1.0), "it asks nothing while it is out"
    claims.waited_in_full(cluster, moved)
    return moved


def test_sites_of_a_killed_lease_move_with_all_they_know_and_the_node_comes_back(
    tmp_path: Path, etcd: str, valkey: str, cluster: str
) -> None:
    recrawl = {
        **harness.QUICK,
        "CRAWLRING_RECRAWL__INTERVAL_MIN_S": "2",
        "CRAWLRING_RECRAWL__VISITS_PER_PAGE_DAY": "20000",
        "CRAWLRING_RECRAWL__INTERVAL_START_S": "2",
        "CRAWLRING_RECRAWL__INTERVAL_MAX_S": "6",
    }
    with harness.running(
        tmp_path, etcd=etcd, redis=valkey, name=cluster, pages=5, delay_s=0.3, environ=recrawl, options=("--recrawl",)
    ) as run:
        run.start_all("n1", "n2", "n3")
        run.seed()
        run.until(lambda: run.part_done(0.8) and run.ledger.again > 60, 40, "some pages were looked at again")
        victim = busiest(run)
        incarnation = run.members()[victim].incarnation
        sites = run.held_by(victim)
        rates = {site: look["change_rate"] for site, look in run.sites().items()}
        kill_s = harness.now_s()
        told = json.loads(run.command("kill-lease", victim, "--rejoin", "6", "--json").stdout)
        assert told == {"node": victim, "done": True}
        moved = lease_is_lost_and_found(run, victim, sites, kill_s)
        for move in moved:
            assert move.moved.change_rate is not None or rates[str(move.moved.site)] is None, move.moved
        assert any(move.moved.change_rate for move in moved)
        run.until(lambda: back(run, victim, incarnation), 12, f"{victim} joins again")
        rejoined_s = harness.now_s()
        assert rejoined_s - kill_s >= 6
        run.until(lambda: run.by(victim, since_s=rejoined_s), 12, f"{victim} asks again")
        run.until(lambda: not run.ledger.missing(), 20, "every page is asked for")
        run.drain()
        ratio = claims.gaps_kept(run)
        found = claims.audited(run)
        print(f"{len(moved)} sites moved, smallest gap {ratio:.3f}, {found.repeats} repeats")


def test_a_lease_revoked_behind_our_back_is_as_a_killed_one(
    tmp_path: Path, etcd: str, valkey: str, cluster: str
) -> None:
    etcdctl = str(Path(local.find_etcd()).with_name("etcdctl"))

    def ctl(*arguments: str) -> str:
        line = [etcdctl, f"--endpoints={etcd}", *arguments]
        return subprocess.run(
            line, env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True, text=True, timeout=20, check=True
        ).stdout

    with harness.running(tmp_path, etcd=etcd, redis=valkey, name=cluster) as run:
        run.start_all("n1", "n2", "n3")
        run.seed()
        run.until(lambda: run.part_done(0.4), 40, "a part is done")
        victim = run.slow_in_flight().node
        incarnation = run.members()[victim].incarnation
        sites = run.held_by(victim)
        lease = json.loads(ctl("get", "-w", "json", run.keys.member(victim)))["kvs"][0]["lease"]
        kill_s = harness.now_s()
        ctl("lease", "revoke", f"{lease:x}")
        moved = lease_is_lost_and_found(run, victim, sites, kill_s)
        run.until(lambda: back(run, victim, incarnation), 12, f"{victim} joins again")
        claims.finish(run)
        run.drain()
        ratio = claims.gaps_kept(run)
        cut = claims.only_aborted_repeat(run)
        assert cut, "the slow page was in flight"
        claims.audited(run)
        print(f"{len(moved)} sites moved, smallest gap {ratio:.3f}, {cut} requests cut short and repeated")


def test_a_killed_node_is_taken_over_in_time_and_only_what_was_in_flight_is_asked_again(
    tmp_path: Path, etcd: str, valkey: str, cluster: str
) -> None:
    ttl_s, view_lease_s, wire_s = 3, 2.5, 2.25
    with harness.running(
        tmp_path, etcd=etcd, redis=valkey, name=cluster, slow_s=2.0, options=(f"--lease-ttl={ttl_s}",)
    ) as run:
        run.start_all("n1", "n2", "n3")
        run.seed()
        run.until(lambda: run.part_done(0.2), 40, "a part is done")

        slow = run.slow_in_flight()
        victim = slow.node
        run.nodes[victim].child.kill()
        kill_s, killed_ms = harness.now_s(), clock.wall_ms()
        sites = run.held_by(victim)
        promised_s = max(ttl_s, view_lease_s + wire_s) + 2
        moved = claims.taken_over(run, victim, sites, killed_ms, within_s=promised_s + run.delay_s + SLACK_S + 2)
        late = []
        for move in moved:
            claims.told_in_full(move.moved, cause="lease_lost", settled_by={"time"})
            if move.first is not None and move.first.first_fetch_ms is not None and move.moved.pending:
                took_s = (move.first.first_fetch_ms - killed_ms) / 1000 - (move.moved.delay_ms or 0) / 1000
                late.append(took_s)
        assert max(late) <= promised_s + SLACK_S / 2, sorted(late)
        claims.waited_in_full(run, moved)
        claims.finish(run)
        repeats = claims.only_in_flight_repeat(run, victim, kill_s)
        assert slow.url in claims.repeated(run), "what was in flight is asked again"
        assert run.nodes[victim].child.poll() == -signal.SIGKILL
        run.drain()
        ratio = claims.gaps_kept(run)
        claims.audited(run)
        print(
            f"{len(moved)} sites moved, first requests {min(late):.2f} to {max(late):.2f} s after the kill and the "
            f"delay (promised {promised_s:g}), {repeats} repeats, smallest gap {ratio:.3f}"
        )
