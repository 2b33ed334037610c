"""`durability = "strict"`: no answer before a disk or a replica has it, and no store that cannot say so.

A process that is killed leaves the kernel its page cache, so the kills here show that what was answered had left the
store's memory, and that a restart finds it; that a disk had it is WAITAOF's word, and what is shown of that is that it is
asked and that no answer comes without its yes. Only cutting the power would show more.
"""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from coordinator import local
from node import claiming, ownership, runner, turn
from shared import config, errors, frontier, metrics
from tests import servers
from tests.stores import shapes


@pytest.fixture
def valkey9(tmp_path: Path) -> Iterator[servers.Server]:
    """With its append-only file, synced before each answer."""
    with servers.running(servers.valkey9(tmp_path / "valkey9", options=("--appendfsync", "always"))) as started:
        yield started


@pytest.fixture
def main(tmp_path: Path) -> Iterator[servers.Server]:
    """A Redis 7.0, which has no WAITAOF."""
    with servers.running(servers.redis7(tmp_path / "main", options=("--repl-diskless-sync-delay", "0"))) as started:
        yield started


@pytest.fixture
def replica(main: servers.Server, tmp_path: Path) -> Iterator[servers.Server]:
    """Its replica, in step."""
    follows = ("--replicaof", local.LOOPBACK, str(main.port))
    with servers.running(servers.redis7(tmp_path / "replica", options=follows)) as started:
        asyncio.run(in_step(main))
        yield started


async def in_step(main: servers.Server) -> None:
    client: Any = redis.asyncio.Redis.from_url(local.redis_url(main), protocol=2)
    async with client as raw:

        async def confirms() -> bool:
            await raw.set("before", "the test")
            return int(await raw.execute_command("WAIT", 1, 200)) == 1

        await shapes.until(confirms, within_s=15.0)


@contextlib.asynccontextmanager
async def strict(server: servers.Server, *, call_s: float = 2.0) -> AsyncIterator[frontier.Frontier]:
    desk = await frontier.Frontier.open(local.redis_url(server), "strict", call_s=call_s, durability="strict")
    try:
        yield desk
    finally:
        await desk.close()


async def ask(server: servers.Server, *words: Any) -> Any:
    client: Any = redis.asyncio.Redis.from_url(local.redis_url(server), protocol=2)
    async with client as raw:
        return await raw.execute_command(*words)


async def calls(server: servers.Server, command: str) -> int:
    """How often the store was asked for this."""
    stats = await ask(server, "INFO", "commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


async def test_each_offer_claim_and_commit_waits_for_the_disk_and_nothing_else_does(valkey9: servers.Server) -> None:
    async with strict(valkey9) as desk:
        before = await calls(valkey9, "waitaof")

        async def waited() -> int:
            return await calls(valkey9, "waitaof") - before

        # All sites of one call share one wait.
        offers = [shapes.offer(1, f"s{number}.org") for number in range(300)]
        assert set(await shapes.offered(desk, *offers, owner_of=lambda _site: "n1")) == {"accepted"}
        assert await waited() == 1
        record = await shapes.claimed(desk, site="s1.org")
        assert await waited() == 2
        await desk.claim(["s1.org"], "n1", 1, delay_s=2.0, again=True)
        await desk.attempt("s1.org", "n1", 1, record.head[0].url)
        await desk.look("s1.org")
        assert await waited() == 2
        committed = await desk.commit("s1.org", "n1", 1, 1, shapes.done(*record.head))
        assert (await waited(), committed.record.pending) == (3, 0)
        # A script that the store has lost is loaded, and its answer waits as well.
        await ask(valkey9, "SCRIPT", "FLUSH")
        assert (await desk.commit("s1.org", "n1", 1, 2, shapes.done())).record.n == 2
        assert await waited() >= 4


async def test_an_offer_is_confirmed_with_its_place_in_the_index(valkey9: servers.Server) -> None:
    """P2: a store that crashed between the two would keep a queue that no owner finds. One step has both."""
    async with strict(valkey9) as desk:
        await shapes.offered(desk, shapes.offer(1))
        assert await calls(valkey9, "zadd") == await calls(valkey9, "waitaof") - 1 == 1, (
            "the store was asked once at the start"
        )
        desk._together = False  # as on a cluster: once before the queues, and once more with them
        await shapes.offered(desk, shapes.offer(2))
        assert await calls(valkey9, "zadd") == 3
    desk = await frontier.Frontier.open(local.redis_url(valkey9), "default")
    desk._together = False
    await shapes.offered(desk, shapes.offer(1))
    await desk.close()
    assert await calls(valkey9, "zadd") == 4


async def test_by_default_nothing_calls(valkey9: servers.Server) -> None:
    desk = await frontier.Frontier.open(local.redis_url(valkey9), "strict")
    await shapes.offered(desk, shapes.offer(1))
    await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(*(await shapes.claimed(desk)).head))
    await desk.close()
    assert await calls(valkey9, "waitaof") == 0


async def test_what_no_disk_confirms_is_not_answered_not_even_when_repeated(valkey9: servers.Server) -> None:
    async with strict(valkey9, call_s=0.5) as desk, strict(valkey9, call_s=0.5) as other:
        await shapes.offered(desk, shapes.offer(1))
        record = await shapes.claimed(desk)
        # A disk that does not come back: the file is written to, and never synced.
        await ask(valkey9, "CONFIG", "SET", "appendfsync", "no")
        # The second caller, on a connection that has written nothing, finds everything done: only its mark is written.
        for caller in (desk, other):
            with pytest.raises(errors.StoreUnavailable, match="not confirmed"):
                await caller.claim([shapes.SITE], "n2", 2, delay_s=0.0)
            with pytest.raises(errors.StoreUnavailable, match="not confirmed"):
                await caller.commit(shapes.SITE, "n2", 2, 1, shapes.done(*record.head))
            with pytest.raises(errors.StoreUnavailable, match="not confirmed"):
                await shapes.offered(caller, shapes.offer(2))
        await ask(valkey9, "CONFIG", "SET", "appendfsync", "always")
        assert await shapes.offered(desk, shapes.offer(2)) == ["known"]
        again = await desk.commit(shapes.SITE, "n2", 2, 1, shapes.done(*record.head))
        assert (again.repeated, again.record.pending, again.record.pages) == (True, 1, 1)
        await ask(valkey9, "CONFIG", "SET", "appendonly", "no")
        with pytest.raises(errors.StoreUnavailable, match="WAITAOF"):
            await shapes.offered(desk, shapes.offer(3))


async def test_a_kill_right_after_an_answer_takes_nothing_that_was_answered(valkey9: servers.Server) -> None:
    """What this shows and what not is in this file's first lines."""
    async with strict(valkey9) as desk:
        offers = [shapes.offer(number, f"s{number % 50}.org") for number in range(500)]
        assert set(await shapes.offered(desk, *offers)) == {"accepted"}
        record = await shapes.claimed(desk, site="s1.org")
        for n, queued in enumerate(record.head[:3], 1):
            await desk.commit("s1.org", "n1", 1, n, shapes.done(queued))
        valkey9.kill()
        with pytest.raises(errors.StoreUnavailable):
            await desk.ping()
        valkey9.start()
        assert await desk.site_count() == 50
        look = await desk.look("s1.org")
        assert look is not None
        assert (look["owner"], look["tenure"], look["pages"], look["pending"]) == ("n1", 1, 3, 7)
        assert set(await shapes.offered(desk, *offers)) == {"known"}


# --- stores that cannot ---------------------------------------------------------------------------------------------


async def refused(server: servers.Server) -> str:
    with pytest.raises(errors.ConfigError) as refusal:
        await frontier.Frontier.open(local.redis_url(server), "strict", durability="strict")
    return str(refusal.value)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (("--appendonly", "no"), "appendonly yes"),
        (("--appendfsync", "no"), "appendfsync always"),
        (("--appendfsync", "everysec"), "appendfsync always"),
    ],
)
async def test_a_file_that_is_off_or_not_synced_before_each_answer_is_refused(
    tmp_path: Path, options: tuple[str, ...], advice: str
) -> None:
    with servers.running(servers.valkey9(tmp_path, options=options)) as server:
        assert advice in await refused(server)
        # The same store will do for those who do not ask for more.
        await (await frontier.Frontier.open(local.redis_url(server), "strict")).close()


async def test_an_old_store_alone_is_refused(main: servers.Server) -> None:
    said = await refused(main)
    assert "WAITAOF" in said
    assert "attach a replica" in said


def test_a_node_and_a_seed_on_such_a_store_end_with_status_2(
    valkey: str, etcd: str, cluster: str, tmp_path: Path
) -> None:
    (tmp_path / "seeds.txt").write_text("https://example.com/\n")
    agent = ("--user-agent", "Test/1.0 (+https://example.org/bot)")
    for command in (("seed", "seeds.txt"), ("node", "--id", "n1", "--out", ".", *agent)):
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "coordinator.cli",
                *command,
                "--etcd",
                etcd,
                "--redis",
                valkey,
                "--cluster",
                cluster,
            ],
            cwd=tmp_path,
            env=os.environ | {"CRAWLRING_DURABILITY": "strict", "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (ended.returncode, "appendonly yes" in ended.stderr) == (2, True), ended.stderr


# --- a replica ------------------------------------------------------------------------------------------------------


async def test_on_an_old_store_a_replica_confirms(main: servers.Server, replica: servers.Server) -> None:
    async with strict(main) as desk:
        before = await calls(main, "wait")
        await shapes.offered(desk, shapes.offer(1), shapes.offer(2))
        record = await shapes.claimed(desk)
        await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(record.head[0]))
        assert await calls(main, "wait") == before + 3
    # What was answered is there, at once.
    copy = await frontier.Frontier.open(local.redis_url(replica), "strict")
    look = await copy.look(shapes.SITE)
    await copy.close()
    assert look is not None
    assert (look["pending"], look["pages"], look["tenure"]) == (1, 1, 1)


async def test_while_the_replica_is_stopped_nothing_is_committed_or_counted(
    main: servers.Server, replica: servers.Server, tmp_path: Path
) -> None:
    async with strict(main, call_s=0.5) as desk:
        await shapes.offered(desk, shapes.offer(1), shapes.offer(2))
        record = await shapes.claimed(desk)
        settings = config.load(environ={}, options={"node.id": "n1", "durability": "strict"})
        node: Any = runner.Runner(
            settings, store=desk, fetcher=None, session=lambda: None, counts=metrics.Metrics()  # type: ignore[arg-type,return-value]
        )  # fmt: skip
        replica.pause()
        try:
            with pytest.raises(errors.StoreUnavailable, match="a replica has not confirmed"):
                await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(record.head[0]))
            with pytest.raises(errors.StoreUnavailable):
                await shapes.offered(desk, shapes.offer(1))
            held = ownership.Held(shapes.SITE, ownership.Phase.VISITING, tenure=1, record=record, n=1)
            persisting = asyncio.create_task(
                node.persist(turn.Turn(held, node._permit(held)), shapes.done(record.head[1]))
            )

            async def paused() -> bool:
                return node.trouble is not None

            await shapes.until(paused)
            assert node.pages == 0
            assert not persisting.done(), persisting
        finally:
            replica.resume()
        answer = await asyncio.wait_for(persisting, 15.0)
        assert (answer.record.pending, answer.record.pages, answer.record.n) == (0, 2, 2)
        assert (node.pages, node.trouble) == (1, None)


def test_claims_that_wait_are_asked_for_together_in_their_order() -> None:
    """One trip for a disk's one wait; no more in it than the memory of both ends is meant for."""
    for durability, room in (("default", claiming.CLAIMS_PER_CALL), ("strict", claiming.STRICT_CLAIMS_PER_CALL)):
        settings = config.load(environ={}, options={"node.id": "n1", "durability": durability})
        node: Any = runner.Runner(
            settings, store=None, fetcher=None, session=lambda: None, counts=metrics.Metrics()  # type: ignore[arg-type,return-value]
        )  # fmt: skip
        names = [f"s{number}.org" for number in range(2_500)]
        parts = (names[:1], names[1:3], names[3:2_000], names[1_990:])
        node.apply(ownership.Claim(tuple(part)) for part in parts)
        asked = list(itertools.takewhile(bool, iter(node.claiming._next_claims, None)))
        assert all(len(part) <= room for part in asked)
        assert list(dict.fromkeys(itertools.chain(*asked))) == names
        assert len(asked) == -(-2_510 // room)
