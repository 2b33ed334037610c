"""A node that holds far fewer sites than it owns crawls all of them, politely, and says when it is done."""

from collections import Counter
from pathlib import Path

import pytest

from coordinator import watching
from tests.cluster import harness

HELD_MAX, SITES, DELAY_S = 20, 120, 0.05
pytestmark = pytest.mark.cluster


def test_120_sites_in_the_memory_of_20(tmp_path: Path, etcd: str, valkey: str, cluster: str) -> None:
    environ = {**harness.QUICK, "CRAWLRING_NODE__SITES_HELD_MAX": str(HELD_MAX)}
    with harness.running(
        tmp_path, etcd=etcd, redis=valkey, name=cluster, site_count=SITES, pages=3, delay_s=DELAY_S, slow_s=0.0,
        environ=environ,
    ) as run:  # fmt: skip
        run.start_all("n1")
        run.seed()
        held: list[int] = []

        def done() -> bool:
            run.read()
            (report,) = run.ask(lambda store: store.reports(["n1"])).values()
            held.append(report.held)
            return not run.ledger.missing() and watching.is_quiet([report], sites=SITES)

        run.until(done, 60, "every page is fetched, and the node knows")
        asked = Counter(request.url for request in run.requests if not request.robots)
        assert max(asked.values()) == 1
        assert 0 < max(held) <= HELD_MAX
        assert not run.ledger.short
        assert not run.ledger.trespasses()
        run.drain()
