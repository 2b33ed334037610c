"""No script touches two slots: the whole frontier runs on a Redis Cluster of one node, which refuses any that does."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis.asyncio
from redis import exceptions

from coordinator import local
from shared import frontier, keys, records
from tests import servers
from tests.stores import shapes


@pytest.fixture(scope="module", params=["valkey9", "redis7"])
def cluster_node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp(f"slots-{request.param}")
    server = servers.STORES[request.param](folder, options=(*servers.UNSYNCED, "--cluster-enabled", "yes"))

    async def assign() -> None:
        async with redis.asyncio.Redis.from_url(local.redis_url(server), protocol=2) as raw:
            await raw.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)

            async def ok() -> bool:
                return (await raw.execute_command("CLUSTER INFO"))["cluster_state"] == "ok"

            await shapes.until(ok, within_s=10.0)

    with servers.running(server):
        asyncio.run(assign())
        yield local.redis_url(server)


async def test_the_whole_frontier_works_where_two_slots_are_refused(cluster_node: str, cluster: str) -> None:
    desk = await frontier.Frontier.open(cluster_node, cluster)
    sites = [f"s{number}.org" for number in range(40)]
    offers = [shapes.offer(number, site) for site in sites for number in range(12)]
    await shapes.offered(desk, *offers, owner_of=lambda _site: "n1")
    # Enough of one site to split both kinds of bucket.
    await shapes.offered(desk, *(shapes.offer(number, sites[0]) for number in range(1_000)))
    assert sorted(await desk.inbox("n1", at_most=100)) == sorted(sites)
    assert await desk.site_count() == 40
    await desk.wake("n1", sites)
    for record in await desk.claim(sites, "n1", 1, delay_s=1.0):
        assert record is not None
        change = shapes.done(
            *record.head,
            pages=tuple((shapes.url(number, record.site), records.PageRecord()) for number in range(100)),
            later=((record.head[0].url, 0.0, 9), (record.head[1].url, 9.0, 1)),
            robots=(("https://x.org", records.RobotsRecord(verdict="allow")),),
        )
        assert (await desk.commit(record.site, "n1", 1, 1, change)).record.later == 1
        assert await desk.look(record.site) is not None
        assert await desk.attempt(record.site, "n1", 1, record.head[0].url) == 0
        assert await desk.robots(record.site, "https://x.org") is not None
    everything = [(shard, 0, 2**48 - 1) for shard in range(keys.INDEX_SHARDS)]
    assert sorted([site async for page in desk.sites_in(everything) for site in page]) == sorted(sites)
    await desk.report(
        records.NodeReport(id="n1", incarnation=1, epoch=1, weight=1, address="", time_ms=1, state="member")
    )
    assert set(await desk.reports(["n1", "n2"])) == {"n1"}
    await desk.append_handoffs([records.Handoff(kind="moved", time_ms=1, epoch=1, node="n1")])
    assert len(await desk.read_handoffs(at_most=5)) == 1
    await desk.close()


async def test_a_script_that_touches_two_slots_is_refused_there(cluster_node: str) -> None:
    """The control: without it the test above could pass on a server that checks nothing."""
    # A script as ours are, and one key more in another slot.
    claim = frontier.SCRIPTS["claim"].text + "\nredis.call('SET', 'elsewhere', '1')"
    asked = frontier.packing.claim("n1", 1, delay_s=1.0)
    async with redis.asyncio.Redis.from_url(cluster_node, protocol=2) as raw:
        with pytest.raises(exceptions.ResponseError, match="slot"):
            await raw.eval(claim.replace("return answer('CLAIMED')", ""), 1, "cr:c:{a.org}:site", *asked)
