"""A short torture on hosts of their own, one Valkey and a Redis Cluster: the whole way from faults to the verdict."""

from pathlib import Path

import pytest

from tests.torture import arena, judge, report, run, schedule, timeline

pytestmark = [pytest.mark.cluster, pytest.mark.netns]

# (at, fault, lasts): a crash, a cut, etcd's leader and a store, partly at once; seconds of crawling.
SINGLE = (
    (1.0, "kill", 9.0),  # longer than the TTL, VL + G and the delay: its sites are asked by others
    (12.0, "cut-both", 6.0),
    (13.0, "etcd-leader-killed", 3.0),
    (21.0, "store-killed", 2.0),
    (22.0, "freeze-around-vl", 5.0),
)
CLUSTER = (
    (1.0, "store-failed-over-lagging", 8.0),
    (2.0, "kill-and-restart-at-once", 1.0),
    (14.0, "lease-revoked", 4.0),
    (15.0, "cut-etcd-out-only", 5.0),
)
PAGES = 32
SITES = 24


@pytest.mark.parametrize(("store", "acts"), [("single", SINGLE), ("cluster", CLUSTER)])
def test_every_promise_holds_under_a_few_faults(
    tmp_path: Path, store: arena.StoreKind, acts: tuple[tuple[float, str, float], ...]
) -> None:
    plan = [schedule.Planned(at_s, name, lasts_s, seed) for seed, (at_s, name, lasts_s) in enumerate(acts)]
    seconds = max(one.until_s for one in plan)
    settings = arena.Settings(store=store, sites=SITES, pages=PAGES)
    run.torture(tmp_path, settings, plan, seconds=seconds, say=print)
    verdict = judge.judge(tmp_path)
    text = report.text(verdict)
    print(text)
    assert not verdict.run.skipped, verdict.run.skipped
    assert len(verdict.faults) == len(plan)
    assert verdict.gaps.moves > 0, "sites changed hands"
    assert verdict.held, text
    assert timeline.draw(tmp_path).startswith("<svg")
