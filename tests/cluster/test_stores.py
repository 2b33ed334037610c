"""When a store is away fetching pauses, says so, and goes on by itself; nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from coordinator import local
from shared import frontier, keys
from tests import servers
from tests.cluster import claims, harness

pytestmark = pytest.mark.cluster

REACTION_S = 1.0  # in which visits under way come to their end


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[local.Server]:
    with servers.running(servers.etcd35(tmp_path / "etcd")) as server:
        yield server


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[local.Server]:
    """Durable as in `crawlring up`."""
    with servers.running(servers.valkey9(tmp_path / "valkey")) as server:
        yield server


def between(run: harness.Cluster, from_s: float, to_s: float) -> list[harness.Request]:
    run.read()
    return [one for one in run.requests if from_s <= one.boot_s < to_s]


def test_a_killed_store_pauses_the_crawl_and_loses_nothing(
    tmp_path: Path, etcd: str, own_valkey: local.Server, cluster: str
) -> None:
    redis_url = local.redis_url(own_valkey)
    with harness.running(tmp_path, etcd=etcd, redis=redis_url, name=cluster, environ={}, slow_s=0.5) as run:
        run.start_all("n1", "n2")
        run.seed()
        run.until(lambda: run.part_done(0.4), 40, "a part is done")
        known = run.ask(frontier.Frontier.site_count)
        with redis.Redis.from_url(redis_url) as raw:  # as if a replica that lags had taken its place
            raw.delete(*(keys.RedisKeys(cluster).index(shard) for shard in range(keys.INDEX_SHARDS)))
        own_valkey.kill()
        down_s = harness.now_s()
        node = run.nodes["n1"]
        status, reason = run.until(lambda: node.ready() if node.ready()[0] == 503 else None, 5, "n1 is not ready")
        assert (status, str(own_valkey.port) in reason) == (503, True), reason
        run.until(lambda: harness.now_s() > down_s + 3.5, 5, "it is away for a while")
        up_s = harness.now_s()
        own_valkey.start()
        assert not between(run, down_s + REACTION_S, up_s), "fetching pauses"
        run.until(lambda: between(run, up_s, up_s + 60), 10, "fetching goes on by itself")
        resumed_s = harness.now_s() - up_s
        run.until(lambda: run.ask(frontier.Frontier.site_count) >= known, 10, "its owners enter the sites again")
        claims.finish(run)
        assert node.ready()[0] == 200
        assert not claims.repeated(run), "outcomes wait for the store"
        run.drain()
        ratio = claims.gaps_kept(run)
        claims.audited(run)
        late = len(between(run, down_s, down_s + REACTION_S))
        print(f"{late} requests in the first second, none after; on again in {resumed_s:.1f} s, smallest {ratio:.3f}")


def test_without_etcd_fetching_stops_when_authority_ends_and_goes_on_by_itself(
    tmp_path: Path, own_etcd: local.Server, valkey: str, cluster: str
) -> None:
    view_lease_s, away_s = 2.5, 8.0
    with harness.running(
        tmp_path, etcd=own_etcd.address, redis=valkey, name=cluster, pages=16, slow_s=0.5, options=("--lease-ttl=20",)
    ) as run:
        run.start_all("n1", "n2")
        run.seed()
        run.until(lambda: run.part_done(0.15), 40, "a part is done")
        before = {node: member.incarnation for node, member in run.members().items()}
        stop_s = harness.now_s()
        own_etcd.stop()
        stopped_s = harness.now_s()
        run.until(lambda: harness.now_s() > stopped_s + away_s, away_s + 2, "it is away for a while")
        status, reason = run.nodes["n1"].ready()
        assert (status, own_etcd.address in reason) == (503, True), reason
        up_s = harness.now_s()
        own_etcd.start()
        assert between(run, stop_s + 0.5, stop_s + 1.2), "authority lasts for a while"
        assert not between(run, stopped_s + view_lease_s + 0.05, up_s), "and then it ends"
        assert run.ledger.missing(), "there was something left to fetch"
        run.until(lambda: between(run, up_s, up_s + 60), 15, "fetching goes on by itself")
        resumed_s = harness.now_s() - up_s
        claims.finish(run)
        after = {node: member.incarnation for node, member in run.members().items()}
        assert after == before, "leases outlive a restart of etcd"
        run.drain()
        cut = claims.only_aborted_repeat(run)
        ratio = claims.gaps_kept(run)
        claims.audited(run)
        last_s = max(one.boot_s for one in between(run, stop_s, up_s)) - stopped_s
        print(
            f"last request {last_s:.2f} s after etcd stopped (VL {view_lease_s:g}), on again in {resumed_s:.1f} s, "
            f"{cut} cut short, smallest {ratio:.3f}"
        )


def test_a_node_started_before_its_stores_waits_for_them_and_says_so(
    tmp_path: Path, own_etcd: local.Server, own_valkey: local.Server, cluster: str
) -> None:
    own_etcd.stop()
    own_valkey.stop()
    redis_url = local.redis_url(own_valkey)
    with harness.running(tmp_path, etcd=own_etcd.address, redis=redis_url, name=cluster) as run:
        node = run.start("n1")

        def tells(what: str) -> str | None:
            status, reason = node.ready()
            return reason if status == 503 and what in reason else None

        for store, address in (("redis", own_valkey.address), ("etcd", own_etcd.address)):
            reason = run.until(lambda address=address: tells(address), 15, f"{store} is named")  # type: ignore[misc]
            assert reason.startswith(store), reason
            tried = [line for line in node.log().splitlines() if "store.unreachable" in line and address in line]
            assert tried, node.log()
            assert "again" in tried[-1], "and what it does about it"
            (own_valkey if store == "redis" else own_etcd).start()
        run.until(lambda: node.ready()[0] == 200, 15, "it has joined")
        run.drain()
