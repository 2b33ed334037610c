"""One site's visits, from the due to the commit: robots.txt first, and then at no more than the site's pace."""

import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path

import pytest

from shared import clock
from tests.node import origins
from tests.node.crawler import DELAY_S, SITE, Answer, Web, crawling, hang_up, moved, reply, robots_txt

OK = reply(b"<p>ok")
ROBOTS = f"http://{SITE}/robots.txt"
WWW = f"http://www.{SITE}"


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    async with made.origin:
        yield made


def paths(web: Web) -> list[str]:
    return [url.removeprefix(f"http://{SITE}") for url in web.urls]


# --- robots.txt -----------------------------------------------------------------------------------------------------


async def test_robots_txt_comes_first_then_the_pages_in_the_order_of_the_queue(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    for page in ("/c", "/a", "/b", "/urgent"):
        web.put(page, OK)
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/c", "/a", "/b")
        await crawl.seed("/urgent", priority=9)
        await crawl.run()
        look = await crawl.look()
    assert paths(web) == ["/robots.txt", "/urgent", "/c", "/a", "/b"]
    assert min(web.gaps_s()) >= DELAY_S
    assert look["robots"]["http://example.com"]["verdict"] == "allow"
    assert look["robots"]["http://example.com"]["status"] == 404
    assert (look["pages"], look["pending"], look["later"], look["set_aside"]) == (4, 0, 0, {})
    assert (look["owner"], look["tenure"], look["seen"]) == ("n1", 10, 4)
    assert (look["delay_ms"], look["due_term"], look["backoff"]) == (100, "minimum", 0)
    assert look["due_ms"] - look["last_fetch_ms"] >= 100


@pytest.mark.parametrize(
    "answer",
    [reply(status="500 Broken"), reply(status="429 Too Many"), hang_up],
    ids=["500", "429", "closed"],
)
async def test_an_unreachable_robots_txt_puts_off_every_page_and_loses_none(
    valkey: str, web: Web, tmp_path: Path, answer: Answer
) -> None:
    web.put("/robots.txt", answer, robots_txt("Disallow: /b"))
    for page in ("/a", "/b", "/c"):
        web.put(page, OK)
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a", "/b", "/c")
        await crawl.run(lambda: len(crawl.records) == 2)
        look = await crawl.look()
        assert (look["pending"], look["later"], look["set_aside"], look["pages"]) == (0, 3, {}, 0)
        assert look["robots"]["http://example.com"]["verdict"] == "disallow"
        assert paths(web) == ["/robots.txt"]
        await crawl.run()
        look = await crawl.look()
    assert paths(web) == ["/robots.txt", "/robots.txt", "/a", "/c"]
    assert web.gaps_s()[0] >= 0.5  # robots_error_ttl_s
    assert (look["pending"], look["later"], look["set_aside"], look["pages"]) == (0, 0, {"robots": 1}, 2)


async def test_while_robots_txt_is_unreachable_its_last_good_copy_holds(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", robots_txt("Disallow: /b"), reply(status="500 Broken"))
    async with crawling(valkey, web, tmp_path, politeness={"robots_ttl_s": 0.25}) as crawl:
        await crawl.seed("/a")
        await crawl.run()
        await origins.until(lambda: clock.boot_s() > web.log[0].end_s + 0.3)
        await crawl.seed("/b", "/c")
        await crawl.run()
        look = await crawl.look()
    assert paths(web) == ["/robots.txt", "/a", "/robots.txt", "/c"]
    assert (look["set_aside"], look["later"]) == ({"robots": 1}, 0)
    assert look["robots"]["http://example.com"]["verdict"] == "rules"


async def test_a_robots_txt_that_moved_within_the_site_is_followed_at_the_sites_pace(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    hops = [f"{WWW}/robots.txt", f"{WWW}/2", "/3", "/4", "/5"]
    for at, target in zip(["/robots.txt", hops[0], hops[1], f"{WWW}/3", f"{WWW}/4"], hops, strict=True):
        web.put(at, moved(target, "302 Found"))
    web.put(f"{WWW}/5", robots_txt("Disallow: /no"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/no", "/yes")
        await crawl.run()
        look = await crawl.look()
    assert web.urls == [ROBOTS, *(f"{WWW}/{name}" for name in ("robots.txt", 2, 3, 4, 5)), f"http://{SITE}/yes"]
    assert min(web.gaps_s()) >= DELAY_S
    assert look["set_aside"] == {"robots": 1}
    assert look["robots"].keys() == {"http://example.com"}


async def test_a_sixth_redirect_of_robots_txt_is_not_followed(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", moved("/robots.txt"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a")
        await crawl.run()
        look = await crawl.look()
    assert paths(web) == ["/robots.txt"] * 6 + ["/a"]
    assert look["robots"]["http://example.com"]["verdict"] == "allow"  # RFC 9309 2.3.1.2: unavailable


async def test_what_robots_txt_forbids_is_set_aside_with_that_reason_and_never_asked_for(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/robots.txt", robots_txt("Disallow: /no", "Allow: /no/but"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed(*(f"/no/{number}" for number in range(20)), "/no/but", "/yes")
        await crawl.run()
        look = await crawl.look()
    assert paths(web) == ["/robots.txt", "/no/but", "/yes"]
    assert (look["set_aside"], look["pending"], look["later"], look["pages"]) == ({"robots": 20}, 0, 0, 2)


async def test_every_origin_of_a_site_has_its_own_robots_txt(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put(f"{WWW}/robots.txt", robots_txt("Disallow: /"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a", f"{WWW}/a", "/b")
        await crawl.run()
        look = await crawl.look()
    assert web.urls == [ROBOTS, f"http://{SITE}/a", f"{WWW}/robots.txt", f"http://{SITE}/b"]
    assert {origin: known["verdict"] for origin, known in look["robots"].items()} == {
        "http://example.com": "allow",
        "http://www.example.com": "rules",
    }


# --- Crawl-delay ----------------------------------------------------------------------------------------------------


async def test_the_largest_crawl_delay_of_the_origins_counts_for_the_site_and_moves_with_it(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/robots.txt", robots_txt("Crawl-delay: 0.15"))
    web.put(f"{WWW}/robots.txt", robots_txt("Crawl-delay: 0.3"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/1", f"{WWW}/2", "/3")
        await crawl.run(lambda: len(web.log) == 2)
        assert ((await crawl.look())["delay_ms"], crawl.records[-1].delay_term) == (150, "crawl_delay")
        await crawl.run()
        look = await crawl.look()
        assert (look["delay_ms"], look["due_term"]) == (300, "crawl_delay")
        assert [line.delay_ms for line in crawl.lines()] == [100, 150, 150, 300, 300]
    gaps = web.gaps_s()
    assert all(gap >= least for gap, least in zip(gaps, [0.15, 0.15, 0.3, 0.3], strict=True))

    # Another node, then the same one after a restart: neither has the rules in memory, nor asks for them again.
    for node, epoch, pages in (("n2", 20, ["/4", "/5"]), ("n2", 30, ["/6", "/7"])):
        before = len(web.log)
        async with crawling(valkey, web, tmp_path, node=node, epoch=epoch) as crawl:
            await crawl.seed(*pages)
            claimed_s = clock.boot_s()
            await crawl.run()
            look = await crawl.look()
            lines = crawl.lines()
        assert paths(web)[before:] == pages
        assert web.log[before].start_s - claimed_s >= 0.3
        assert web.gaps_s()[-1] >= 0.3
        assert (look["owner"], look["delay_ms"], look["pages"]) == (node, 300, before)
        assert [(line.delay_ms, line.due_term) for line in lines] == [(300, "takeover"), (300, "crawl_delay")]
        assert {line.tenure for line in lines} == {epoch}


async def test_a_crawl_delay_beyond_the_cap_is_cut_and_says_so(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", robots_txt("Crawl-delay: 3600"))
    async with crawling(valkey, web, tmp_path, politeness={"delay_cap_s": 0.3}) as crawl:
        await crawl.seed("/a")
        await crawl.run()
        look = await crawl.look()
    assert (look["delay_ms"], look["due_term"]) == (300, "crawl_delay_capped")
    assert web.gaps_s()[0] >= 0.3


async def test_a_slow_answer_earns_a_longer_delay(valkey: str, web: Web, tmp_path: Path) -> None:
    async def slow(visitor: origins.Visitor) -> None:
        until_s = clock.boot_s() + 0.3
        await origins.until(lambda: clock.boot_s() >= until_s)
        await visitor.send(OK)

    web.put("/a", slow)
    async with crawling(valkey, web, tmp_path, politeness={"duration_factor": 1}) as crawl:
        await crawl.seed("/a", "/b")
        await crawl.run(lambda: len(web.log) == 2)
        assert (await crawl.look())["delay_ms"] >= 300
        assert (await crawl.look())["due_term"] == "duration"
        await crawl.run()
        assert (await crawl.look())["delay_ms"] < 300
    assert web.gaps_s()[-1] >= 0.3


# --- pauses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_retry_after_pauses_the_site_and_its_next_owner(
    valkey: str, web: Web, tmp_path: Path, status: str
) -> None:
    web.put("/a", reply(status=status, retry_after="1"), OK)
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a", "/b")
        await crawl.run(lambda: len(crawl.records) == 2)
        look = await crawl.look()
        assert (look["due_term"], look["backoff"], look["delay_ms"]) == ("retry_after", 1, 100)
        assert (look["pending"], look["later"]) == (1, 1)
        assert look["due_ms"] - look["last_fetch_ms"] >= 1_000
    async with crawling(valkey, web, tmp_path, node="n2", epoch=20) as crawl:
        crawl.take_over()
        await crawl.run()
        look = await crawl.look()
        assert [line.visit for line in crawl.lines()] == ["first", "retry"]
    assert paths(web) == ["/robots.txt", "/a", "/b", "/a"]
    assert web.gaps_s()[1] >= 1.0
    assert (look["backoff"], look["due_term"], look["pages"]) == (0, "minimum", 3)


async def test_a_date_in_retry_after_is_the_moment_of_the_next_request(valkey: str, web: Web, tmp_path: Path) -> None:
    until_s = int(time.time()) + 90
    web.put("/a", reply(status="503 Service Unavailable", retry_after=formatdate(until_s, usegmt=True)))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a", "/b")
        await crawl.run(lambda: len(crawl.records) == 2)
        look = await crawl.look()
    assert look["due_term"] == "retry_after"
    assert 0 <= look["due_ms"] - until_s * 1_000 < 1_000
    async with crawling(valkey, web, tmp_path, node="n2", epoch=20) as crawl:
        crawl.take_over()
        await crawl.run(lambda: crawl.owned.sites[SITE].tenure == 20)
        assert crawl.owned.sites[SITE].ready_s - clock.boot_s() > 85
        assert (await crawl.look())["due_ms"] == look["due_ms"]
    assert len(web.log) == 2


async def test_a_robots_txt_may_ask_for_a_pause_too(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", reply(status="503 Service Unavailable", retry_after="30"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a")
        await crawl.run(lambda: len(crawl.records) == 1)
        look = await crawl.look()
        assert crawl.owned.sites[SITE].ready_s - clock.boot_s() > 29
    assert (look["due_term"], look["backoff"], look["pending"]) == ("retry_after", 1, 1)
    assert look["due_ms"] - look["last_fetch_ms"] >= 30_000


async def test_pauses_without_a_number_double_and_a_good_answer_ends_them(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    busy = reply(status="503 Service Unavailable")
    web.put("/a", busy, busy, busy, OK)
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a")
        await crawl.run()
        await crawl.seed("/b")
        await crawl.run()
    assert paths(web) == ["/robots.txt", "/a", "/a", "/a", "/a", "/b"]
    assert [(one.backoff, one.due_term) for one in crawl.records] == [
        (0, "minimum"),
        (1, "backoff"),
        (2, "backoff"),
        (3, "backoff"),
        (0, "minimum"),
        (0, "minimum"),
    ]
    gaps = web.gaps_s()
    assert all(gap >= least for gap, least in zip(gaps, [0.1, 0.2, 0.4, 0.8, 0.1], strict=True))
