"""On a Redis Cluster the frontier does what it does on one server, and slots that move cost time and nothing else."""

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator
from typing import Any

import hypothesis
import pytest
import redis.asyncio
from hypothesis import stateful

from coordinator import local
from shared import errors, frontier, keys, records, slots, stores
from tests import redis_cluster as clusters
from tests.stores import shapes, test_commit, test_handoffs, test_index, test_model, test_offer, test_try

ALL_SITES = [(shard, 0, 2**48 - 1) for shard in range(keys.INDEX_SHARDS)]


@pytest.fixture
async def desk(redis_cluster: clusters.Cluster, cluster: str) -> AsyncIterator[frontier.Frontier]:
    """In place of the one on a single server."""
    opened = await frontier.Frontier.open(redis_cluster.url, cluster)
    yield opened
    await opened.close()


# Every test of the contract that asks for nothing but a frontier runs here as well, on the fixture above.
for _module, (_name, _test) in itertools.chain.from_iterable(
    zip(itertools.repeat(module), inspect.getmembers(module, inspect.iscoroutinefunction))
    for module in (test_commit, test_handoffs, test_index, test_offer, test_try)
):
    if _name.startswith("test_") and set(inspect.signature(_test).parameters) <= {"desk", "cluster"}:
        globals()[f"{_module.__name__.rpartition('.')[2]}__{_name}"] = _test


def test_the_contract_is_run_here() -> None:
    """The control of the loop above."""
    assert sum("__test_" in name for name in globals()) > 40


def test_the_frontier_does_what_the_model_says(redis_cluster: clusters.Cluster) -> None:
    class ModelOnCluster(test_model.Model):
        url = redis_cluster.url

    settings = hypothesis.settings(max_examples=8, stateful_step_count=20, deadline=None)
    stateful.run_state_machine_as_test(ModelOnCluster, settings=settings)


@pytest.mark.parametrize("durability", ["default", "strict"])
async def test_many_sites_on_all_masters_are_served_together(
    redis_cluster: clusters.Cluster, cluster: str, durability: frontier.Durability
) -> None:
    desk = await frontier.Frontier.open(redis_cluster.url, cluster, durability=durability)
    sites = [f"s{number}.org" for number in range(60)]
    names = keys.RedisKeys(cluster)
    assert len({(await redis_cluster.master_of(names.site(site))).port for site in sites[:10]}) == 3
    offers = [shapes.offer(number, site) for number in range(12) for site in sites]
    assert await shapes.offered(desk, *offers, owner_of=lambda _site: "n1") == ["accepted"] * 720
    assert await shapes.offered(desk, *offers[:100]) == ["known"] * 100
    assert sorted(await desk.inbox("n1", at_most=100)) == sorted(sites)
    assert sorted([site async for page in desk.sites_in(ALL_SITES) for site in page]) == sorted(sites)
    assert await desk.site_count() == 60
    for record in await desk.claim(sites, "n1", 1, delay_s=1.0):
        assert isinstance(record, records.SiteRecord)
        change = shapes.done(*record.head, robots=(("https://x.org", records.RobotsRecord(verdict="allow")),))
        assert (await desk.commit(record.site, "n1", 1, 1, change)).record.pending == 4
        assert await desk.robots(record.site, "https://x.org") is not None
    for node in ("n1", "n2", "n3"):
        report = records.NodeReport(id=node, incarnation=1, epoch=1, weight=1, address="", time_ms=1, state="member")
        await desk.report(report)
    assert set(await desk.reports(["n1", "n2", "n3", "n4"])) == {"n1", "n2", "n3"}
    assert await desk.run_id() == await desk.run_id()
    await desk.close()


async def test_calls_share_a_bounded_number_of_connections(redis_cluster: clusters.Cluster, cluster: str) -> None:
    desk = await frontier.Frontier.open(redis_cluster.url, cluster, call_s=20.0)

    async def clients() -> list[int]:
        told = [await redis_cluster.ask(one, "INFO", "clients") for one in redis_cluster.servers]
        return [int(one["connected_clients"]) for one in told]

    before = await clients()
    await asyncio.gather(*(shapes.offered(desk, shapes.offer(1, f"s{number}.org")) for number in range(600)))
    after = await clients()
    assert await desk.site_count() == 600
    assert all(most - least <= stores.CONNECTIONS_MAX for least, most in zip(before, after, strict=True)), after
    await desk.close()


async def test_strict_waits_for_a_replica_on_the_master_that_was_written_to(
    redis_cluster: clusters.Cluster, cluster: str
) -> None:
    desk = await frontier.Frontier.open(redis_cluster.url, cluster, durability="strict")
    master = await redis_cluster.master_of(desk._keys.site(shapes.SITE))

    async def waits() -> dict[int, int]:
        told = {one.port: await redis_cluster.ask(one, "INFO", "commandstats") for one in redis_cluster.servers[:3]}
        return {port: int(stats.get("cmdstat_wait", {"calls": 0})["calls"]) for port, stats in told.items()}

    await shapes.offered(desk, shapes.offer(1))
    before = await waits()
    record = await shapes.claimed(desk)
    await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(*record.head))
    after = await waits()
    assert {port: after[port] - before[port] for port in after if after[port] != before[port]} == {master.port: 2}
    await desk.close()


# --- slots that move ------------------------------------------------------------------------------------------------


class Move:
    """One slot, from its master to another, key by key."""

    def __init__(self, redis_cluster: clusters.Cluster, key: str) -> None:
        self._cluster = redis_cluster
        self._key = key

    async def _ask(self, server: local.Server, *words: Any) -> Any:
        return await self._cluster.ask(server, *words)

    async def begin(self) -> None:
        self.source = await self._cluster.master_of(self._key)
        masters = [one for one in self._cluster.servers if (await self._ask(one, "ROLE"))[0] == b"master"]
        self.target = next(one for one in masters if one is not self.source)
        self.slot = int(await self._ask(self.source, "CLUSTER", "KEYSLOT", self._key))
        self.names = [(await self._ask(one, "CLUSTER", "MYID")).decode() for one in (self.source, self.target)]
        await self._ask(self.target, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.names[0])
        await self._ask(self.source, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.names[1])

    async def some(self, count: int) -> int:
        """Move so many keys; how many there were to move."""
        found = await self._ask(self.source, "CLUSTER", "GETKEYSINSLOT", self.slot, count)
        if found:
            await self._ask(
                self.source, "MIGRATE", local.LOOPBACK, self.target.port, "", 0, 2_000, "KEYS", *found
            )  # fmt: skip
        return len(found)

    async def end(self) -> None:
        while await self.some(100):
            pass
        for server in (self.target, self.source):
            await self._ask(server, "CLUSTER", "SETSLOT", self.slot, "NODE", self.names[1])


async def test_a_slot_that_is_moved_key_by_key_refuses_its_sites_whole_until_it_has_moved(
    redis_cluster: clusters.Cluster, desk: frontier.Frontier
) -> None:
    """No script runs on half of a site: what it writes before it misses a key would stay."""
    await shapes.offered(desk, *(shapes.offer(number) for number in range(20)))
    await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(*(await shapes.claimed(desk)).head))
    before = await desk.look(shapes.SITE)
    move = Move(redis_cluster, desk._keys.site(shapes.SITE))
    await move.begin()
    left = 1
    while left:  # with none of its keys moved, with one, with two, ...
        for call in (
            desk.claim([shapes.SITE], "n2", 2, delay_s=0.0),
            desk.commit(shapes.SITE, "n1", 1, 2, shapes.done()),
            shapes.offered(desk, shapes.offer(1), shapes.offer(77)),
            desk.attempt(shapes.SITE, "n1", 1, shapes.url(1)),
            desk.look(shapes.SITE),
        ):
            with pytest.raises(errors.StoreUnavailable):
                await call
        left = await move.some(1)
    await move.end()
    after = await desk.look(shapes.SITE)
    assert after == before
    assert await shapes.offered(desk, shapes.offer(1), shapes.offer(77)) == ["known", "accepted"]
    assert (await shapes.claimed(desk, "n2", 2)).pending == 13


@pytest.mark.parametrize("durability", ["default", "strict"])
async def test_a_slot_that_has_moved_is_followed_within_the_call(
    redis_cluster: clusters.Cluster, cluster: str, durability: frontier.Durability
) -> None:
    desk = await frontier.Frontier.open(redis_cluster.url, cluster, durability=durability)
    sites = [f"s{number}.org" for number in range(50)]
    await shapes.offered(desk, *(shapes.offer(1, site) for site in sites))
    for site in sites[:4]:
        move = Move(redis_cluster, desk._keys.site(site))
        await move.begin()
        await move.end()
    # In one call, and with scripts that the new server has not seen.
    for server in redis_cluster.servers:
        await redis_cluster.ask(server, "SCRIPT", "FLUSH")
    answers = await desk.claim(sites, "n1", 1, delay_s=0.0)
    assert [record.pending for record in answers if isinstance(record, records.SiteRecord)] == [1] * 50
    await desk.close()


async def test_a_server_that_left_is_closed_when_its_callers_have_been_answered(valkey: str) -> None:
    """One that waits for a connection would otherwise open another, which nobody closes."""
    server = stores.Server(stores.place(f"{valkey}?max_connections=1", call_s=2.0, strict=False).options)
    told = await server.pipe([("CLIENT", "ID")])
    calls = [asyncio.create_task(server.pipe([("BLPOP", "nothing", 0.1)])) for _ in range(3)]
    await asyncio.sleep(0)
    await server.close()
    assert await asyncio.gather(*calls) == [[None]] * 3
    async with redis.asyncio.Redis.from_url(valkey, protocol=2) as raw:
        still = await raw.client_list()
    assert int(told[0]) > 0
    assert [one for one in still if one["cmd"] in {"blpop", "client|id"}] == []


# --- reading the map ------------------------------------------------------------------------------------------------


def test_a_map_names_masters_in_the_order_of_their_slots_and_replicas_that_live() -> None:
    asked = stores.Address("10.0.0.9", 7)
    rows = [
        [5461, 16383, [b"", 7002, b"b", []], [b"10.0.0.4", 7004, b"d", []]],
        [0, 5460, [b"10.0.0.1", 7001, b"a", []]],
    ]
    info = b"cluster_state:ok\r\ncluster_current_epoch:6\r\n"
    found = slots.read_map(asked, rows, info)
    # A server that knows no name of its own is the one that was asked.
    first, second = stores.Address("10.0.0.1", 7001), stores.Address("10.0.0.9", 7002)
    assert (found.works, found.epoch, found.masters) == (True, 6, (first, second))
    assert [share.replicas for share in found.shares] == [(stores.Address("10.0.0.4", 7004),), ()]
    assert not slots.read_map(asked, [], b"cluster_state:fail\r\n").works


def test_a_mark_has_a_name_for_every_slot() -> None:
    names = keys.RedisKeys("c")
    tags = slots._tags()
    assert len(set(tags)) == slots.SLOTS
    assert all(slots._slot(names.mark(tags[slot])) == slot for slot in range(0, slots.SLOTS, 97))


async def test_every_server_is_known_whichever_the_url_names(redis_cluster: clusters.Cluster, cluster: str) -> None:
    """So that none of them is ever fetched from."""
    one = redis_cluster.url.partition(",")[0]
    desk = await frontier.Frontier.open(one, cluster)
    await desk.site_count()
    found = desk.servers()
    assert len(found) == 6
    assert {port for _, port in found} == {server.port for server in redis_cluster.servers}
    await desk.close()


async def test_a_server_that_is_no_cluster_is_an_operator_error(valkey: str) -> None:
    url = valkey.replace("redis://", "redis-cluster://")
    with pytest.raises(errors.ConfigError, match="no cluster"):
        await frontier.Frontier.open(url, "none")


async def test_one_odd_server_says_nothing_of_the_others(
    redis_cluster: clusters.Cluster, valkey: str, cluster: str
) -> None:
    """An address that was given to another, or that speaks another language, must not end every node."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(64)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    strange = other.sockets[0].getsockname()[1]
    plain = valkey.removeprefix("redis://").removesuffix("/0")
    async with other:
        odd = redis_cluster.url.replace("://", f"://{plain},127.0.0.1:{strange},")
        desk = await frontier.Frontier.open(odd, cluster)
        for _ in range(3):
            desk._store._stale, desk._store._looked_s = True, float("-inf")  # type: ignore[attr-defined]
            assert await desk.site_count() == 0
        await desk.close()


async def test_a_cluster_of_which_nobody_answers_is_unavailable() -> None:
    url = f"redis-cluster://127.0.0.1:{local.free_port()},127.0.0.1:{local.free_port()}"
    with pytest.raises(errors.StoreUnavailable):
        await frontier.Frontier.open(url, "none")
