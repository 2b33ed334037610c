"""A paused site, and a paused crawl, start nothing new on any node until they are resumed, and ask nothing twice for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import claims, harness

pytestmark = pytest.mark.cluster

WATCHED_S = 1.0  # three delays: so long nothing must come


def idle(run: harness.Cluster) -> dict[str, Any] | None:
    """What `status` tells, once what was on its way when the pause was heard has been answered."""
    told: dict[str, Any] = json.loads(run.command("status", "--json").stdout)
    return told if told["in_flight"] == 0 else None


def quiet(run: harness.Cluster, sites: set[str], since_s: float) -> list[str]:
    """Requests to these sites after a moment, seen for a while."""
    run.until(lambda: harness.now_s() > since_s + WATCHED_S, 10, "a while has passed")
    return [one.url for one in run.requests if one.site in sites and one.boot_s > since_s]


def test_a_pause_holds_through_moves_and_restarts_and_repeats_nothing(
    tmp_path: Path, etcd: str, valkey: str, cluster: str
) -> None:
    with harness.running(
        tmp_path, etcd=etcd, redis=valkey, name=cluster, site_count=9, pages=60, slow_s=0.5, delay_s=0.3
    ) as run:
        run.start_all("n1", "n2")
        run.seed()
        run.until(lambda: run.part_done(0.03), 30, "a part is done")
        names = {site.name for site in run.graph.sites}
        chosen = next(one.site for one in run.requests[-5:])

        told = json.loads(run.command("pause", chosen, "--json").stdout)
        assert told == {"all": False, "sites": [chosen], "unheard": []}
        in_flight_ended_s = harness.now_s() + 0.8  # the slowest answer is 0.5 s away
        run.until(lambda: harness.now_s() > in_flight_ended_s, 5, "what was on its way has ended")
        assert quiet(run, {chosen}, in_flight_ended_s) == []
        assert [one for one in run.requests if one.boot_s > in_flight_ended_s], "the rest of the crawl goes on"

        run.command("pause", "--all")
        status = run.until(lambda: idle(run), 10, "nothing is in flight")
        assert status["paused"] == {"all": True, "sites": [chosen]}
        assert status["pending"] > 0

        paused_s = harness.now_s()
        run.drain("n1")  # its sites move; a node that begins now hears before it starts anything
        run.start("n3")
        run.until(lambda: set(run.members()) == {"n2", "n3"}, 20, "membership goes on")
        assert quiet(run, names, paused_s) == []

        run.command("resume", "--all")
        run.until(lambda: run.by("n3"), 20, "the new node asks")
        assert not [one for one in run.requests if one.site == chosen and one.boot_s > in_flight_ended_s]
        resumed_s = harness.now_s()
        run.command("resume", chosen)
        run.until(lambda: run.to(chosen)[-1].boot_s > resumed_s, 20, "the site goes on")
        run.drain()
        assert claims.gaps_kept(run) >= 1
        assert claims.audited(run).repeats == 0
        assert not claims.repeated(run)
