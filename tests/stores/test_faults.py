"""A store that is silent, gone, restarted or cut off costs time and never a URL, and every call may be repeated."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis.asyncio

from coordinator import local
from shared import errors, frontier, keys
from tests import servers
from tests.stores import shapes


@pytest.fixture(params=["valkey9", "redis7"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[servers.Server]:
    """A store of this test's own, with its append-only file, to be stopped and killed."""
    with servers.running(servers.STORES[request.param](tmp_path)) as started:
        yield started


@contextlib.asynccontextmanager
async def opened(url: str, *, cluster: str = "faults", call_s: float = 2.0) -> AsyncIterator[frontier.Frontier]:
    desk = await frontier.Frontier.open(url, cluster, call_s=call_s)
    try:
        yield desk
    finally:
        await desk.close()


async def test_a_store_that_is_not_there_is_unavailable_and_a_url_of_no_store_is_an_operator_error() -> None:
    with pytest.raises(errors.StoreUnavailable):
        await frontier.Frontier.open(f"redis://127.0.0.1:{local.free_port()}/0", "faults")
    with pytest.raises(errors.ConfigError):
        await frontier.Frontier.open("http://127.0.0.1:1/", "faults")


async def test_a_silent_store_is_unavailable_in_time_and_its_late_commit_is_not_applied_twice(
    server: servers.Server,
) -> None:
    async with opened(local.redis_url(server), call_s=0.3) as desk:
        await shapes.offered(desk, *(shapes.offer(number) for number in range(3)))
        record = await shapes.claimed(desk)
        change = shapes.done(record.head[0])
        server.pause()
        began = time.monotonic()
        with pytest.raises(errors.StoreUnavailable):
            await desk.commit(shapes.SITE, "n1", 1, 1, change)
        assert time.monotonic() - began < 1.5
        server.resume()

        async def ran() -> bool:
            look = await desk.look(shapes.SITE)
            return look is not None and look["pending"] == 2

        await shapes.until(ran)
        # The call that timed out had been sent, and ran when the store woke up.
        again = await desk.commit(shapes.SITE, "n1", 1, 1, change)
        assert again.repeated
        assert (again.record.pending, again.record.pages) == (2, 1)


async def test_the_first_call_after_a_restart_finds_all_that_was_answered(server: servers.Server) -> None:
    async with opened(local.redis_url(server)) as desk:
        before = await desk.run_id()
        await shapes.offered(desk, *(shapes.offer(number) for number in range(700)))
        await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(*(await shapes.claimed(desk)).head))
        server.kill()
        with pytest.raises(errors.StoreUnavailable):
            await desk.ping()
        server.start()
        # Neither the old connections nor the scripts survive a crash; the caller notices neither.
        assert set(await shapes.offered(desk, *(shapes.offer(number) for number in range(700)))) == {"known"}
        record = await shapes.claimed(desk)
        assert (record.n, record.pending) == (1, 692)
        assert await desk.run_id() != before


async def test_idle_connections_to_a_restarted_store_are_replaced(server: servers.Server) -> None:
    async with opened(local.redis_url(server)) as desk:
        await asyncio.gather(*(desk.ping() for _ in range(10)))
        await asyncio.to_thread(server.stop)
        # Off the loop, which has to hear that its connections were closed.
        await asyncio.to_thread(server.start)
        assert all(await asyncio.gather(*(desk.ping() for _ in range(10))))


async def test_scripts_that_the_store_forgot_are_loaded_again_within_the_call(
    desk: frontier.Frontier, store: str
) -> None:
    offers = [shapes.offer(1, f"s{number}.org") for number in range(300)]
    async with redis.asyncio.Redis.from_url(store, protocol=2) as raw:
        await raw.script_flush()
        assert await shapes.offered(desk, *offers) == ["accepted"] * 300
        await raw.script_flush()
        record = await shapes.claimed(desk, site="s1.org")
        await raw.script_flush()
        await desk.commit("s1.org", "n1", 1, 1, shapes.done(*record.head))


async def test_a_store_without_memory_is_unavailable_and_nothing_is_half_done(
    desk: frontier.Frontier, store: str
) -> None:
    await shapes.offered(desk, shapes.offer(1))
    async with redis.asyncio.Redis.from_url(store, protocol=2) as raw:
        await raw.config_set("maxmemory", "1mb")
        try:
            with pytest.raises(errors.StoreUnavailable):
                await shapes.offered(desk, *(shapes.offer(number) for number in range(100)))
            # Reading goes on.
            look = await desk.look(shapes.SITE)
        finally:
            await raw.config_set("maxmemory", "0")
    assert look is not None
    assert (look["pending"], look["seen"]) == (1, 1)


async def test_a_key_of_the_cluster_that_is_of_another_kind_is_told_as_the_stores_trouble(
    desk: frontier.Frontier, store: str
) -> None:
    """Of no site: none is left alone for it, and no node ends."""
    async with redis.asyncio.Redis.from_url(store, protocol=2) as raw:
        await raw.set(desk._keys.index(0), "not a zset")
        with pytest.raises(errors.StoreUnavailable, match=r"not crawlring's.*WRONGTYPE"):
            await desk.site_count()
        await raw.set(desk._keys.inbox("n1"), "not a list")
    assert await shapes.offered(desk, shapes.offer(1), owner_of=lambda _site: "n1") == ["accepted"]


async def test_a_bug_of_ours_is_not_taken_for_an_outage(desk: frontier.Frontier) -> None:
    with pytest.raises(redis.exceptions.ResponseError, match="wrong number"):
        await desk._trip([("ZCARD",)])


async def test_more_callers_than_connections_wait_their_turn(store: str, cluster: str) -> None:
    desk = await frontier.Frontier.open(store, cluster, call_s=20.0)
    await asyncio.gather(*(shapes.offered(desk, shapes.offer(number)) for number in range(200)))
    assert (await shapes.claimed(desk)).pending == 200
    await desk.close()


class Cutter:
    """A proxy that, once armed, cuts the connection at a request that holds a word: unsent, or sent and unanswered."""

    def __init__(self, upstream_port: int, word: bytes, *, sent: bool) -> None:
        self._upstream_port = upstream_port
        self._word = word
        self._sent = sent
        self.armed = False
        self.cut = False
        self._open = 0

    async def is_idle(self) -> bool:
        return self._open == 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        answers = asyncio.ensure_future(self._pass_on(up_reader, writer))
        try:
            while chunk := await reader.read(1 << 20):
                if self.armed and self._word in chunk:
                    # No answer may slip out: the caller must not know whether it ran.
                    answers.cancel()
                    await asyncio.wait([answers])
                    self.armed, self.cut = False, True
                    if self._sent:
                        up_writer.write(chunk)
                        await up_reader.read(1)
                    break
                up_writer.write(chunk)
        finally:
            answers.cancel()
            for one in (writer, up_writer):
                one.close()
                with contextlib.suppress(OSError):
                    await one.wait_closed()
            self._open -= 1

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 20):
            writer.write(chunk)


@pytest.mark.parametrize("sent", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize(
    ("word", "together"),
    [(b"EVALSHA", True), (b"ZADD", False), (b"EVALSHA", False), (b"RPUSH", False)],
    ids=["together-EVALSHA", "apart-ZADD", "apart-EVALSHA", "apart-RPUSH"],
)
async def test_an_offer_cut_off_at_any_step_leaves_nothing_that_no_owner_would_find(
    store: str, cluster: str, word: bytes, *, together: bool, sent: bool
) -> None:
    """P2: the index is written before the queue, so whatever queue there is is in the index. Apart: as in a cluster."""
    cutter = Cutter(int(store.rsplit(":", 1)[1].split("/", maxsplit=1)[0]), word, sent=sent)
    proxy = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    offers = [shapes.offer(1, f"s{number}.org") for number in range(20)]
    async with proxy:
        async with opened(f"redis://127.0.0.1:{port}/0", cluster=cluster) as through:
            through._together = together
            cutter.armed = True
            # The hint is no part of the promise: an offer that could not leave it is answered all the same.
            refused = contextlib.nullcontext() if word == b"RPUSH" else pytest.raises(errors.StoreUnavailable)
            with refused:
                await shapes.offered(through, *offers, owner_of=lambda _site: "n1")
            assert cutter.cut
            everything = [(shard, 0, 2**48 - 1) for shard in range(keys.INDEX_SHARDS)]
            indexed = {site async for page in through.sites_in(everything) for site in page}
            for one in offers:
                look = await through.look(one.site)
                assert look is None or look["pending"] == 0 or one.site in indexed
            # The caller offers again; by then all is accepted, once, and the owner has been told of every site.
            assert set(await shapes.offered(through, *offers, owner_of=lambda _site: "n1")) <= {"accepted", "known"}
            assert set(await through.inbox("n1", at_most=1_000)) == {one.site for one in offers}
            for one in offers:
                assert (await shapes.claimed(through, site=one.site)).pending == 1
        await shapes.until(cutter.is_idle)
