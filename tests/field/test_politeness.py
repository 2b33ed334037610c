"""Field cases of the pace of a site: what its answers ask for is kept, by whichever node owns it."""

import asyncio
import itertools
from email.utils import formatdate

from shared import clock
from tests.field.stage import OK, Scene, case, outcomes, reply
from tests.node.crawler import SITE, robots_txt


@case("retry-after-date")
async def test_a_retry_after_that_is_a_date_holds_up_to_the_ceiling(scene: Scene) -> None:
    far = f"http://far-{scene.site}"
    until_s = int(clock.wall_ms() / 1000) + 2
    scene.put("/p", reply(status="503 Service Unavailable", retry_after=formatdate(until_s, usegmt=True)), OK)
    scene.put(f"{far}/p", reply(status="503 Service Unavailable", retry_after="Fri, 31 Dec 2027 23:59:59 GMT"), OK)
    async with scene.crawl(politeness={"backoff_cap_s": 2.5}) as crawl:
        await scene.seed(crawl, "/p", f"{far}/p")
        await crawl.run(lambda: all(outcomes(crawl, url) for url in (scene.url("/p"), f"{far}/p")))
        for site in (scene.site, f"far-{scene.site}"):
            assert (await crawl.look(site))["due_term"] == "retry_after", "it shows"
        await crawl.run(
            lambda: all(len(outcomes(crawl, url)) == 2 for url in (scene.url("/p"), f"{far}/p")), within_s=10
        )
    offset_s = clock.wall_ms() / 1000 - clock.boot_s()
    assert scene.stage.asked("/p")[1].start_s + offset_s >= until_s - 0.01
    first, again = scene.stage.asked(f"{far}/p")
    assert 2.5 <= again.start_s - first.end_s < 4.0


@case("retry-after-negative")
async def test_a_negative_retry_after_is_none_and_the_own_back_off_holds(scene: Scene) -> None:
    scene.put("/p", reply(status="429 Too Many Requests", retry_after="-5"), OK)
    async with scene.crawl(politeness={"backoff_min_s": 0.5}) as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run(lambda: bool(outcomes(crawl, scene.url("/p"))))
        look = await crawl.look(scene.site)
        assert (look["due_term"], look["backoff"]) == ("backoff", 1)
        await crawl.run(lambda: len(outcomes(crawl, scene.url("/p"))) == 2)
    first, again = scene.stage.asked("/p")
    assert again.start_s - first.end_s >= 0.5


@case("cluster-double-serve")
async def test_two_workers_at_one_instant_are_one_visitor(scene: Scene) -> None:
    """Both believe that the site is theirs: the store lets one of them begin."""
    pages = [f"/{number}" for number in range(5)]
    slow_s = 0.15

    async def slow(visitor):
        await asyncio.sleep(slow_s)
        await visitor.send(OK)

    for page in pages:
        scene.put(page, slow)
    async with scene.crawl(node="n1") as one, scene.crawl(node="n2") as two:
        await scene.seed(one, *pages)
        for crawl in (one, two):
            crawl.take_over(scene.site)
        await asyncio.gather(one.run(), two.run())
        assert sorted([len(one.lines()), len(two.lines())]) == [0, len(pages) + 1]
    assert sorted(scene.stage.paths) == sorted(pages)
    assert len(scene.stage.asked("/robots.txt")) == 1


@case("cluster-delay-not-shared")
async def test_what_one_worker_learned_of_a_sites_pace_binds_the_next(scene: Scene) -> None:
    busy = f"http://busy-{scene.site}"
    scene.put("/robots.txt", robots_txt("Crawl-delay: 0.6"))
    for page in "/a", "/b", "/c":
        scene.put(page, OK)
    scene.put(f"{busy}/q", OK)
    scene.put(f"{busy}/p", reply(status="503 Service Unavailable", retry_after="2"), OK)
    async with scene.crawl(node="n1") as one:
        await scene.seed(one, "/a", f"{busy}/p")
        await one.run(lambda: bool(outcomes(one, f"{busy}/p")) and bool(outcomes(one, scene.url("/a"))))
        last = scene.stage.log[-1]
    async with scene.crawl(node="n2", epoch=20) as two:
        two.take_over(f"busy-{scene.site}")
        await scene.seed(two, "/b", "/c", f"{busy}/q")
        await two.run()
        look = await two.look(scene.site)
        assert (look["owner"], look["delay_ms"]) == ("n2", 600)
        assert SITE not in {line.site for line in two.lines()}
    assert last.url
    own = [one for one in scene.stage.log if one.url.startswith(scene.url("/"))]
    assert [one.line for one in own] == ["/robots.txt", "/a", "/b", "/c"], "its robots.txt moved with it"
    for before, after in itertools.pairwise(own):
        assert after.start_s - before.end_s >= 0.6
    blocked = [one for one in scene.stage.log if one.url.startswith(f"{busy}/")]
    assert [one.line for one in blocked[:2]] == ["/robots.txt", "/p"]
    assert sorted(one.line for one in blocked[2:]) == ["/p", "/q"]
    assert blocked[2].start_s - blocked[1].end_s >= 2.0, "the site was blocked, not the page alone"
