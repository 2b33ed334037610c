"""A page at which one owner after another dies is set aside by the next; a site that only moves loses nothing."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import local
from node import ownership
from tests import servers
from tests.node.crawler import Crawler, Web, crawling, full, reply, robots_txt

OK = reply(b"<p>ok")


@pytest.fixture
def redis_with_file(tmp_path: Path) -> Iterator[str]:
    """A Valkey that syncs before it answers."""
    with servers.running(servers.valkey9(tmp_path / "valkey", options=("--appendfsync", "always"))) as started:
        yield local.redis_url(started)


class Died(BaseException):
    """The node's process is gone, before it could commit anything."""


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    async with made.origin:
        made.put("/robots.txt", robots_txt())
        for path in ("/poison", "/a", "/b"):
            made.put(path, OK)
        yield made


@pytest.fixture
def nodes(valkey: str, web: Web, tmp_path: Path) -> Callable[[], Any]:
    """One owner after another, each with a memory of its own."""
    numbers = itertools.count(1)

    def crawl() -> Any:
        number = next(numbers)
        return crawling(valkey, web, tmp_path, node=f"n{number}", epoch=number * 10)

    return crawl


async def healthy(crawl: Crawler, *urls: str) -> None:
    """Seed, read robots.txt, and leave."""
    await crawl.seed(*urls)
    await crawl.run(lambda: len(crawl.records) == 1)


async def dies_at(crawl: Crawler, web: Web, *paths: str) -> None:
    """Own the site until one of these pages has come."""
    before = sum(len(web.asked(path)) for path in paths)

    async def before_commit() -> None:
        if sum(len(web.asked(path)) for path in paths) > before:
            raise Died

    crawl.before_commit = before_commit
    crawl.take_over()
    with pytest.raises(Died):
        await crawl.run()


async def test_a_page_that_three_owners_died_at_is_set_aside_and_the_others_go_on(
    web: Web, nodes: Callable[[], Any]
) -> None:
    async with nodes() as crawl:
        await healthy(crawl, "/poison", "/a", "/b")
    for _ in range(3):
        async with nodes() as crawl:
            await dies_at(crawl, web, "/poison")
            assert (await crawl.look())["set_aside"] == {}
    async with nodes() as crawl:
        crawl.take_over()
        await crawl.run()
        look = await crawl.look()
    assert (look["set_aside"], look["pending"], look["later"]) == ({"three_tenures": 1}, 0, 0)
    assert web.urls == [full("/robots.txt"), *[full("/poison")] * 3, full("/a"), full("/b")]


async def test_two_such_pages_are_both_found_though_the_first_is_set_aside_by_one_that_dies_at_the_second(
    web: Web, nodes: Callable[[], Any]
) -> None:
    async with nodes() as crawl:
        await healthy(crawl, "/poison", "/a", "/b")
    for _ in range(3):
        async with nodes() as crawl:
            await dies_at(crawl, web, "/poison", "/a")
    # This one has a commit, that of setting the first aside: it is none of the second page's three.
    for _ in range(4):
        async with nodes() as crawl:
            await dies_at(crawl, web, "/poison", "/a")
    async with nodes() as crawl:
        crawl.take_over()
        await crawl.run()
        look = await crawl.look()
    assert look["set_aside"] == {"three_tenures": 2}
    assert [len(web.asked(path)) for path in ("/poison", "/a", "/b")] == [3, 4, 1]


async def test_a_page_that_is_committed_once_begins_anew(web: Web, nodes: Callable[[], Any]) -> None:
    async with nodes() as crawl:
        await healthy(crawl, "/poison", "/a")
    for _ in range(2):
        async with nodes() as crawl:
            await dies_at(crawl, web, "/poison")
    async with nodes() as crawl:
        crawl.take_over()
        await crawl.run(lambda: len(crawl.records) == 1)
        assert (await crawl.look())["head"] == [full("/a")]
    async with nodes() as crawl:
        crawl.take_over()
        await crawl.run()
        assert (await crawl.look())["set_aside"] == {}
    assert [len(web.asked(path)) for path in ("/poison", "/a")] == [3, 1]


@pytest.mark.parametrize("waits_s", [0.0, 0.15], ids=["before its due", "after its due"])
async def test_a_site_that_moves_on_and_on_without_a_fetch_keeps_every_page(
    web: Web, nodes: Callable[[], Any], waits_s: float
) -> None:
    async with nodes() as crawl:
        await healthy(crawl, "/a", "/b")
    for _ in range(6):
        async with nodes() as crawl:
            crawl.take_over()
            await crawl._claim()
            await asyncio.sleep(waits_s)  # a delay is 0.1 s: the owner is busy elsewhere for longer
    async with nodes() as crawl:
        await dies_at(crawl, web, "/a")
    async with nodes() as crawl:
        await dies_at(crawl, web, "/a")
    async with nodes() as crawl:
        crawl.take_over()
        await crawl.run()
        look = await crawl.look()
    assert (look["set_aside"], look["pages"]) == ({}, 2)
    assert [len(web.asked(path)) for path in ("/a", "/b")] == [3, 1]


async def test_a_site_that_is_lost_just_before_the_request_leaves_no_mark(web: Web, nodes: Callable[[], Any]) -> None:
    async with nodes() as crawl:
        await healthy(crawl, "/a")
    for _ in range(6):
        async with nodes() as crawl:
            started: list[ownership.Held] = []

            def lose(held: ownership.Held, crawl: Crawler = crawl, started: list[ownership.Held] = started) -> None:
                started.append(held)
                crawl.lose()

            crawl.on_start = lose
            crawl.take_over()
            await crawl.run(lambda started=started: bool(started))
            assert started[0].n == 0
    async with nodes() as crawl:
        crawl.take_over()
        await crawl.run()
        assert (await crawl.look())["set_aside"] == {}
    assert len(web.asked("/a")) == 1


async def test_no_other_visit_asks_the_store_for_more(
    web: Web, nodes: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: the mark is written where a tenure ended without a commit, and there once."""
    asked: list[str] = []
    async with nodes() as crawl:
        whole = type(crawl.store).attempt

        async def counted(self: Any, site: str, node: str, tenure: int, url: str) -> int:
            asked.append(node)
            return int(await whole(self, site, node, tenure, url))

        monkeypatch.setattr(type(crawl.store), "attempt", counted)
        await healthy(crawl, "/a", "/b")
    async with nodes() as crawl:
        crawl.take_over()
        await crawl.run(lambda: len(crawl.records) == 1)
    async with nodes() as crawl:
        await dies_at(crawl, web, "/b")
    assert asked == []
    async with nodes() as crawl:
        await crawl.seed("/c")
        crawl.take_over()
        await crawl.run()
    assert asked == ["n4"]


@pytest.mark.parametrize(("durability", "synced"), [("strict", 2), ("default", 0)])
async def test_a_strict_commit_comes_after_its_page_is_on_the_disk(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_with_file: str, durability: Any, synced: int
) -> None:
    files: list[str] = []
    whole = os.fsync

    def fsync(number: int) -> None:
        files.append(Path(f"/proc/self/fd/{number}").readlink().name)
        whole(number)

    monkeypatch.setattr(os, "fsync", fsync)
    async with crawling(redis_with_file, web, tmp_path, durability=durability) as crawl:
        order: list[int] = []

        async def before_commit() -> None:
            order.append(len(files))

        crawl.before_commit = before_commit
        await crawl.seed("/a", "/b")
        await crawl.run()
        assert files == [crawl.sink_path.name] * synced
    # robots.txt, then the pages: each had its line on the disk when it was committed.
    assert order == ([0, 1, 2] if synced else [0, 0, 0])
