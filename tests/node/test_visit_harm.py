"""What one site answers, and what this machine lacks, harms no other site and loses nothing of the crawl."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from node import addresses, offering, reading, turn
from tests.field import stage as staging
from tests.field.stage import OK, Scene, moved, reply


@pytest.fixture
async def scene(valkey: str, tmp_path: Path) -> AsyncIterator[Scene]:
    made = staging.Stage("harm.test")
    async with made.open():
        yield Scene("harm", made, valkey, tmp_path)


async def test_a_page_that_is_visited_again_and_again_unchanged_is_no_space_without_end(scene: Scene) -> None:
    scene.put("/", reply(b"<title>Home</title><p>Welcome. Nothing here ever changes, and no validator says so."))
    async with scene.crawl(politeness={"delay_min_s": 0.005}) as crawl:
        visits = await scene.visits(crawl, "/", 70)
        look = await crawl.look(scene.site)
    assert (len(visits), visits[-1].checks) == (70, 69)
    assert (look["endless"], look["set_aside"]) == ((), {})


async def test_a_robots_txt_that_moved_is_read_where_its_address_has_many_sites(scene: Scene) -> None:
    moved_to = f"http://www.{scene.site}/robots.txt"
    scene.put("/robots.txt", moved(moved_to))
    scene.put(moved_to, reply(b"User-agent: *\nDisallow: /no"))
    scene.put("/yes", OK)
    async with scene.crawl() as crawl:
        crawl.fetcher._crowd = addresses.Addresses(0.3, exempt=())
        await scene.seed(crawl, "/no", "/yes")
        await crawl.run()
        aside = await scene.aside(crawl)
    assert [one.url for one in scene.stage.log] == [scene.url("/robots.txt"), moved_to, scene.url("/yes")]
    assert aside == {"robots": 1}


@pytest.mark.parametrize("named", ["{scene.other}/page", "http://{scene.site}/index.xml"])
async def test_who_names_another_sites_page_as_a_sitemap_does_not_change_how_it_is_read(
    scene: Scene, named: str
) -> None:
    page = f"{scene.other}/page"
    index = f"<sitemapindex><sitemap><loc>{page}</loc></sitemap></sitemapindex>"
    scene.put("/robots.txt", reply(f"Sitemap: {named.format(scene=scene)}".encode(), kind="text/plain"))
    scene.put("/index.xml", reply(index.encode(), kind="text/xml"))
    scene.put("/", OK)
    scene.put(page, reply(f"<title>mine</title><a href=/next>x</a><pre>\n{scene.other}/listed\n</pre>".encode()))
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/")
        await crawl.run()
        line = crawl.pages()[page]
    assert (line.title, line.links) == ("mine", (f"{scene.other}/next",))
    assert f"{scene.other}/next" in [one.url for one in scene.stage.log]


async def test_a_thousand_links_do_not_keep_the_nodes_other_work_waiting(scene: Scene) -> None:
    turns = 0
    judged: list[int] = []

    async def turning() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def named() -> Iterator[reading.Target]:
        for number in range(1_000):
            judged.append(turns)
            yield reading.Target(scene.url(f"/{number}"))

    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/")
        await crawl.run(lambda: bool(crawl.owned.sites.get(scene.site) and crawl.owned.sites[scene.site].record))
        held = crawl.owned.sites[scene.site]
        other = asyncio.create_task(turning())
        try:
            await offering.offer(named(), turn.Turn(held, crawl._permit(held)), crawl.tools)
        finally:
            other.cancel()
        seen = (await crawl.look(scene.site))["seen"]
    assert max(Counter(judged).values()) <= offering.BREATH
    assert seen == 1_001
