"""The field case of many sites on one address: a limit of its own, on top of each site's."""

import asyncio
import itertools

from node import addresses, fetch
from shared import clock, config, records
from tests.field.stage import OK, Names, Scene, case, outcomes
from tests.node import origins

SITES = 16
NODES_SITES = 6
GAP_S = 0.1
LATE_S = 0.06  # that a request may be on its way to the origin's log longer than another


@case("trap-shared-ip")
async def test_many_sites_on_one_address_share_its_limit(scene: Scene) -> None:
    pages = [f"http://{number}-{scene.site}/p" for number in range(SITES)]
    for page in pages:
        scene.put(page, OK)
    log, starts = await asked_by_all(scene, pages, exempt=())
    assert len(log) == len(starts) == SITES
    for times in (starts, log):
        spaced(times)
    assert log[-1] - log[0] < SITES * GAP_S * 2, "and no longer than it must"
    scene.stage.log.clear()
    free, _ = await asked_by_all(scene, pages, exempt=addresses.LOOPBACK)
    assert free[-1] - free[0] < SITES * GAP_S / 2, "an exempt network has no limit"
    await a_node_keeps_it_too(scene, pages[:NODES_SITES])


async def a_node_keeps_it_too(scene: Scene, pages: list[str]) -> None:
    """A whole crawl of such sites: the limit holds, robots.txt included, and costs no site a page or a pause."""
    scene.stage.log.clear()
    async with scene.crawl(crowd=addresses.Addresses(GAP_S, ())) as crawl:
        await scene.seed(crawl, *pages)
        await crawl.run()
        assert [outcomes(crawl, page) for page in pages] == [["fetched"]] * len(pages)
        looks = [await crawl.look(page.split("/")[2]) for page in pages]
    assert {(look["backoff"], look["pending"], look["later"]) for look in looks} == {(0, 0, 0)}
    assert all(look["set_aside"] == {} for look in looks)
    asked = [one.url for one in scene.stage.log]
    assert sorted(asked) == sorted(url for page in pages for url in (page, page.replace("/p", "/robots.txt")))
    spaced([one.start_s for one in scene.stage.log])


def spaced(times: list[float]) -> None:
    """However many of them lie between two, these are as many gaps apart; neighbours as well."""
    for (at, first), (later, last) in itertools.combinations(enumerate(times), 2):
        assert last - first >= (later - at) * GAP_S - LATE_S


async def asked_by_all(scene: Scene, pages: list[str], *, exempt: tuple[str, ...]) -> tuple[list[float], list[float]]:
    """Every page asked for at one instant, each again when it is told to; the origin's log, and when we began."""
    starts = []
    made = fetch.Fetcher(
        user_agent=origins.AGENT,
        limits=config.Limits(),
        resolver=Names(scene.stage),
        idle_max=SITES,
        crowd=addresses.Addresses(GAP_S, exempt),
    )
    await made.start()

    async def ask(page: str) -> None:
        deadline_s = clock.boot_s() + 10
        while True:
            answer = await made.fetch(page, permit=origins.Gate().permit(page.split("/")[2]))
            if isinstance(answer.outcome, records.Fetched):
                starts.append(answer.start_boot_s)
                return
            assert answer.outcome.reason == "crowded", answer.outcome
            assert not answer.sent
            assert clock.boot_s() < deadline_s
            await asyncio.sleep(answer.wait_s)

    try:
        await asyncio.gather(*map(ask, pages))
    finally:
        await made.close()
    return [one.start_s for one in scene.stage.log], sorted(starts)
