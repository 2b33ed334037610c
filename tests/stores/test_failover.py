"""A Redis Cluster that loses a master: calls answer or say that it is away, and what strict answered is kept.

Each test leaves the cluster whole, though not with the masters it had.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from coordinator import local
from shared import errors, frontier
from tests import redis_cluster as clusters
from tests import servers
from tests.stores import shapes

CALL_S = 1.0
FAILS_OVER_S = 15.0
T = TypeVar("T")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with clusters.running(tmp_path_factory.mktemp("failover")) as started:
        yield started


@contextlib.asynccontextmanager
async def opened(
    lab: clusters.Cluster, cluster: str, durability: frontier.Durability = "default"
) -> AsyncIterator[frontier.Frontier]:
    desk = await frontier.Frontier.open(lab.url, cluster, call_s=CALL_S, durability=durability)
    try:
        yield desk
    finally:
        await desk.close()


async def whole(lab: clusters.Cluster) -> None:
    """Whatever ended runs again, whatever was frozen goes on, and the cluster has settled."""
    for server in lab.servers:
        server.resume()
        if server.exit_status is not None:
            server.start()  # in this thread: a server ends with the one that started it
    await lab.settle(within_s=30.0)


async def answers_again(desk: frontier.Frontier, site: str = shapes.SITE) -> None:
    """The same frontier finds the new master by itself."""

    async def looked() -> bool:
        with contextlib.suppress(errors.StoreUnavailable):
            return await desk.look(site) is not None and await desk.ping() > 0
        return False

    await shapes.until(looked, within_s=FAILS_OVER_S)


@dataclasses.dataclass
class Stream:
    """Sites that are offered to and committed, call after call, each until it is answered."""

    desk: frontier.Frontier
    over: bool = False
    accepted: dict[str, int] = dataclasses.field(default_factory=dict)
    committed: dict[str, int] = dataclasses.field(default_factory=dict)
    refusals: int = 0
    longest_s: float = 0.0
    forgotten: int = 0

    async def serve(self, site: str) -> None:
        self.accepted[site] = self.committed[site] = 0
        await self._answered(lambda: self.desk.claim([site], "n1", 1, delay_s=0.0))
        while not self.over:
            number = self.accepted[site] + 1
            await self._answered(lambda: shapes.offered(self.desk, shapes.offer(number, site)))  # noqa: B023
            self.accepted[site] = number
            n = self.committed[site] + 1
            told = await self._answered(lambda: self.desk.commit(site, "n1", 1, n, shapes.done(visits=1)))  # noqa: B023
            self.committed[site] = n
            self.forgotten += told.forgotten

    async def _answered(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            began = time.monotonic()
            try:
                return await call()
            except errors.StoreUnavailable:
                self.refusals += 1
                await asyncio.sleep(0.05)
            finally:
                self.longest_s = max(self.longest_s, time.monotonic() - began)


async def test_a_master_that_is_killed_under_strict_takes_nothing_that_was_answered(
    lab: clusters.Cluster, cluster: str
) -> None:
    sites = [f"s{number}.org" for number in range(24)]
    async with opened(lab, cluster, "strict") as desk:
        stream = Stream(desk)
        serving = [asyncio.create_task(stream.serve(site)) for site in sites]
        victim = await lab.master_of(desk._keys.site(sites[0]))
        alone = [site for site in sites if await lab.master_of(desk._keys.site(site)) is not victim]
        lives = await desk.run_id()

        async def flows(past: int) -> bool:
            return all(count > past for count in stream.committed.values()) and len(stream.committed) == len(sites)

        await shapes.until(lambda: flows(5), within_s=20.0)
        replica = await lab.replica_of(victim)
        replica.pause()
        await lab.ask(victim, "CLIENT", "KILL", "TYPE", "replica")
        # From here on the replica gets nothing, so that nothing may be answered; a weaker store would go on.
        refused, committed = stream.refusals, stream.committed[sites[0]]

        async def stands_or_goes_on() -> bool:
            return stream.refusals > refused or stream.committed[sites[0]] > committed + 50

        await shapes.until(stands_or_goes_on)
        victim.kill()
        replica.resume()
        answered = dict(stream.committed)

        async def taken_over() -> bool:
            master = await lab.master_of(desk._keys.site(sites[0]))
            return master is not victim and master.exit_status is None

        await shapes.until(taken_over, within_s=FAILS_OVER_S)
        await whole(lab)
        await shapes.until(lambda: flows(max(answered.values()) + 5), within_s=30.0)
        stream.over = True
        await asyncio.gather(*serving)
        assert 0 < len(alone) < len(sites)
        assert stream.refusals > 0
        assert stream.longest_s < 4 * CALL_S
        assert await desk.run_id() != lives
        # Counted anew from the store: each answer is in it, once, and no commit found the store behind.
        assert stream.forgotten == 0
        for site in sites:
            look = await desk.look(site)
            assert look is not None
            assert (look["pages"], look["seen"]) == (stream.committed[site], stream.accepted[site]), site


async def test_a_replica_that_lagged_and_took_over_is_found_to_have_forgotten(
    lab: clusters.Cluster, cluster: str
) -> None:
    async with opened(lab, cluster) as desk:
        await shapes.offered(desk, *(shapes.offer(number) for number in range(20)))
        record = await shapes.claimed(desk)
        slow = shapes.done(delay_s=7.0, due_in_s=7.0)
        record = (await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(record.head[0]))).record
        master = await lab.master_of(desk._keys.site(shapes.SITE))
        replica = await lab.replica_of(master)
        await lab.ask(master, "WAIT", 1, 2_000)
        replica.pause()
        await lab.ask(master, "CLIENT", "KILL", "TYPE", "replica")  # nothing more reaches it, not even its socket
        for n in (2, 3):
            told = await desk.commit(shapes.SITE, "n1", 1, n, shapes.done(record.head[0]))
            record = told.record
        master.kill()
        replica.resume()
        try:
            await answers_again(desk)
            behind = await desk.look(shapes.SITE)
            assert behind is not None
            assert (behind["pages"], behind["pending"]) == (1, 19), "nothing was lost, so nothing is shown"
            again = await desk.commit(shapes.SITE, "n1", 1, 4, slow)
            assert again.forgotten
            assert (again.record.n, again.record.delay_s) == (4, 7.0)
            # What was forgotten to be done is pending again: a repeat, and no loss.
            assert again.record.pending == 19
            assert not (await desk.commit(shapes.SITE, "n1", 1, 5, slow)).forgotten
        finally:
            await whole(lab)


async def test_a_frozen_master_costs_each_call_a_bounded_time_until_it_is_replaced(
    lab: clusters.Cluster, cluster: str
) -> None:
    async with opened(lab, cluster) as desk:
        await shapes.offered(desk, *(shapes.offer(number) for number in range(20)))
        record = await shapes.claimed(desk)
        master = await lab.master_of(desk._keys.site(shapes.SITE))
        await lab.ask(master, "WAIT", 1, 2_000)
        master.pause()
        try:
            n, longest_s = 1, 0.0
            deadline = time.monotonic() + FAILS_OVER_S
            while n <= 3:
                began = time.monotonic()
                assert began < deadline, "it was not replaced"
                try:
                    record = (await desk.commit(shapes.SITE, "n1", 1, n, shapes.done(record.head[0]))).record
                    n += 1
                except errors.StoreUnavailable:
                    await asyncio.sleep(0.05)
                longest_s = max(longest_s, time.monotonic() - began)
            assert longest_s < 4 * CALL_S
        finally:
            await whole(lab)
        # The one that was frozen comes back as a replica, with what it was still asked thrown away.
        assert (await desk.commit(shapes.SITE, "n1", 1, 4, shapes.done())).record.pages == 3


async def test_slots_that_nobody_has_are_away_until_their_servers_are_back(lab: clusters.Cluster, cluster: str) -> None:
    async with opened(lab, cluster) as desk:
        await shapes.offered(desk, shapes.offer(1))
        master = await lab.master_of(desk._keys.site(shapes.SITE))
        replica = await lab.replica_of(master)
        await lab.ask(master, "WAIT", 1, 2_000)
        replica.kill()
        master.kill()

        async def all_are_away() -> bool:
            """Those of other masters too, once the cluster knows: it serves all of its slots or none."""
            refused = 0
            for site in (shapes.SITE, *(f"s{number}.org" for number in range(20))):
                with contextlib.suppress(errors.StoreUnavailable):
                    await desk.look(site)
                    continue
                refused += 1
            return refused == 21

        with pytest.raises(errors.StoreUnavailable):
            await desk.look(shapes.SITE)
        await shapes.until(all_are_away, within_s=FAILS_OVER_S)
        with pytest.raises(errors.StoreUnavailable):
            await desk.ping()
        with pytest.raises(errors.StoreUnavailable):
            await frontier.Frontier.open(lab.url, cluster, call_s=CALL_S)
        await whole(lab)
        await answers_again(desk)
        assert await shapes.offered(desk, shapes.offer(1)) == ["known"]


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[clusters.Cluster]:
    """One master with all slots."""
    options = (*clusters.OPTIONS, "--cluster-port", str(local.free_port()))
    with servers.running(servers.redis7(tmp_path, options=options)) as server:
        yield clusters.Cluster([server] * 5)


async def test_a_cluster_whose_masters_have_no_replica_is_refused_by_strict(
    lonely: clusters.Cluster, cluster: str
) -> None:
    await lonely.ask(lonely.servers[0], "CLUSTER", "ADDSLOTSRANGE", 0, clusters.SLOTS - 1)

    async def works() -> bool:
        return b"cluster_state:ok" in await lonely.ask(lonely.servers[0], "CLUSTER", "INFO")

    await shapes.until(works, within_s=10.0)
    with pytest.raises(errors.ConfigError, match="no replica"):
        await frontier.Frontier.open(lonely.url, cluster, durability="strict")
    await (await frontier.Frontier.open(lonely.url, cluster)).close()
