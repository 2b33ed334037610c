"""What a node writes into the logs as the store's time does not follow its own wall clock."""

import time
from typing import Any

import pytest

from node import runner
from shared import clock, config, frontier, metrics


async def test_a_wall_clock_that_is_stepped_leaves_the_stores_time_as_it_was(
    valkey: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config.load(environ={}, options={"node.id": "n1"})
    store = await frontier.Frontier.open(valkey, cluster)
    nobody: Any = None
    work = runner.Runner(settings, store=store, fetcher=nobody, session=nobody, counts=metrics.Metrics())
    assert abs(work.store_ms_at(clock.boot_s()) - clock.wall_ms()) < 2_000, "before anything was measured"
    await work.measure_clock()
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() - 3_600)
    assert abs(work.store_ms_at(clock.boot_s()) - await store.ping()) < 2_000
    await work.measure_clock()
    assert abs(work.store_ms_at(clock.boot_s()) - await store.ping()) < 2_000
    assert 3_598_000 < work.clock_error_ms() < 3_602_000, "and the lines of the crawl log say how far off they are"
    await store.close()
