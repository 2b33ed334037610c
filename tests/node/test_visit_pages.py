"""What a visit finds on a page: links, redirects, validators, changes; all of it kept before the page is committed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from coordinator import local
from shared import clock, records
from tests import servers
from tests.node import origins
from tests.node.crawler import SITE, Crawler, Web, crawling, full, linking, moved, reply, robots_txt, score_of

OTHER = "other.example"
LATER = {
    "enabled": True,
    "interval_min_s": 0.15,
    "interval_max_s": 0.15,
    "interval_start_s": 0.15,
    "visits_per_page_day": 1e6,
}
MODIFIED = "Mon, 05 Oct 2020 10:00:00 GMT"


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    async with made.origin:
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.Server]:
    """A Valkey of this test's own, with its append-only file, to be killed."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    with servers.running(servers.valkey9(folder)) as started:
        yield started


def conditions(web: Web, url: str) -> list[tuple[str | None, str | None]]:
    return [
        (arrival.headers.get("if-none-match"), arrival.headers.get("if-modified-since")) for arrival in web.asked(url)
    ]


# --- links ----------------------------------------------------------------------------------------------------------


async def test_links_join_the_queues_of_their_sites_which_enter_the_index(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/", linking("/a#top", "/a", f"http://www.{SITE}/b", f"http://{OTHER}/x", "mailto:me@example.com"))
    async with crawling(valkey, web, tmp_path, elsewhere={OTHER: "n9"}) as crawl:
        await crawl.seed("/")
        await crawl.run()
        look, other = await crawl.look(), await crawl.look(OTHER)
        assert (look["seen"], look["pages"], look["pending"]) == (3, 3, 0)
        assert (other["head"], other["owner"], other["pages"]) == ([f"http://{OTHER}/x"], None, 0)
        ranges = [(score_of(OTHER) >> 40, score_of(OTHER), score_of(OTHER))]
        assert [page async for page in crawl.store.sites_in(ranges)] == [[OTHER]]
        assert await crawl.store.inbox("n9", at_most=10) == [OTHER]
        assert crawl.pages()[full("/")].links == (
            full("/a"),
            f"http://www.{SITE}/b",
            f"http://{OTHER}/x",
        )
    assert {full("/"), full("/a"), f"http://www.{SITE}/b"} < set(web.urls)
    assert not [url for url in web.urls if OTHER in url]


@pytest.mark.parametrize(
    ("page", "offered"),
    [
        (linking("/l", x_robots_tag="nofollow"), False),
        (linking("/l", x_robots_tag="noindex, none"), False),
        (linking("/l", x_robots_tag="Test: nofollow"), False),
        (linking("/l", x_robots_tag="otherbot: nofollow"), True),
        (linking("/l", x_robots_tag="noindex"), True),
        (linking("/l", head='<meta name="robots" content="noindex, nofollow">'), False),
        (linking("/l", head='<meta name="test" content="nofollow">'), False),
        (linking("/l", head='<meta name="otherbot" content="nofollow">'), True),
    ],
    ids=["header", "header none", "header ours", "header other's", "noindex", "meta", "meta ours", "meta other's"],
)
async def test_links_of_a_page_that_says_nofollow_are_not_offered(
    valkey: str, web: Web, tmp_path: Path, page: bytes, offered: bool
) -> None:
    web.put("/", page)
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/")
        await crawl.run(lambda: len(crawl.records) == 2)
        look = await crawl.look()
        assert crawl.pages()[full("/")].nofollow is not offered
    assert (look["seen"], look["pending"]) == ((2, 1) if offered else (1, 0))


async def test_a_link_that_looks_like_a_trap_is_not_offered(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/", linking("/x" * 40, "/a/a/a/a/", "/" + "y" * 3_000, "/good"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/")
        await crawl.run()
        look = await crawl.look()
    assert (look["seen"], look["set_aside"]) == (2, {})
    assert web.urls[1:] == [full("/"), full("/good")]


async def test_a_trap_that_was_seeded_is_set_aside_for_its_shape(valkey: str, web: Web, tmp_path: Path) -> None:
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a/a/a/a/", "/good")
        await crawl.run()
        look = await crawl.look()
    assert (look["set_aside"], look["pending"]) == ({"repeats": 1}, 0)
    assert web.urls[1:] == [full("/good")]


# --- redirects ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["301 Moved", "303 See Other", "308 Permanent"])
async def test_a_redirect_within_the_site_is_offered_and_has_a_turn_of_its_own(
    valkey: str, web: Web, tmp_path: Path, status: str
) -> None:
    web.put("/old", moved("/new", status))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/old", "/next")
        await crawl.run()
        look = await crawl.look()
        line = crawl.pages()[full("/old")]
        assert (line.status, line.redirect, line.content) == (int(status[:3]), "/new", None)
    assert web.urls[1:] == [full("/old"), full("/next"), full("/new")]
    assert (look["pages"], look["seen"]) == (3, 3)


async def test_a_redirect_to_another_site_is_offered_there_and_not_followed(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/old", moved(f"http://{OTHER}/new"))
    async with crawling(valkey, web, tmp_path, elsewhere={OTHER: "n9"}) as crawl:
        await crawl.seed("/old")
        await crawl.run()
        assert (await crawl.look(OTHER))["head"] == [f"http://{OTHER}/new"]
        ranges = [(score_of(OTHER) >> 40, score_of(OTHER), score_of(OTHER))]
        assert [page async for page in crawl.store.sites_in(ranges)] == [[OTHER]]
        assert await crawl.store.inbox("n9", at_most=10) == [OTHER]
    assert web.urls[1:] == [full("/old")]


async def test_a_loop_of_redirects_ends(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/a", moved("/b"))
    web.put("/b", moved("/a"))
    web.put("/self", moved("/self"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a", "/self")
        await crawl.run()
        look = await crawl.look()
    assert web.urls[1:] == [full("/a"), full("/self"), full("/b")]
    assert (look["pending"], look["later"], look["pages"]) == (0, 0, 3)


# --- second visits --------------------------------------------------------------------------------------------------


async def test_a_second_visit_asks_with_both_validators_and_304_is_a_check_without_a_change(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    page = reply(b"<p>one", etag='"v1"', last_modified=MODIFIED)
    web.put("/a", page, reply(status="304 Not Modified", etag='"v1"'))
    async with crawling(valkey, web, tmp_path, recrawl=LATER) as crawl:
        await crawl.seed("/a")
        await crawl.run(lambda: len(crawl.records) == 2)
        look = await crawl.look()
        assert (look["validators"], look["change_rate"], look["pending"], look["later"]) == (1, None, 0, 1)
        await crawl.run(lambda: len(crawl.records) == 4)
        look, record = await crawl.look(), crawl.records[-1]
        assert [(line.outcome, line.status, line.visit) for line in crawl.lines()[1:]] == [
            ("fetched", 200, "first"),
            ("not_modified", 304, "recrawl"),
            ("not_modified", 304, "recrawl"),
        ]
    assert conditions(web, "/a") == [(None, None), ('"v1"', MODIFIED.lower()), ('"v1"', MODIFIED.lower())]
    assert (record.checks, record.changes, record.validators) == (2, 0, 1)
    assert record.observed_s >= 0.3
    assert (look["change_rate"], look["validators"], look["pages"]) == (0.0, 1, 3)


async def test_a_changed_page_counts_as_a_change_in_the_sites_rate(valkey: str, web: Web, tmp_path: Path) -> None:
    answers = [reply(f"<p>{number}".encode(), etag=f'"{number}"') for number in (1, 2, 3)]
    web.put("/a", *answers, reply(status="304 Not Modified"))
    async with crawling(valkey, web, tmp_path, recrawl=LATER) as crawl:
        await crawl.seed("/a")
        await crawl.run(lambda: len(crawl.records) == 5)
        look, record = await crawl.look(), crawl.records[-1]
        told = crawl.pages()[full("/a")]
    assert told.change_rate_low < told.change_rate <= told.change_rate_high
    assert conditions(web, "/a") == [(None, None), ('"1"', None), ('"2"', None), ('"3"', None)]
    assert (record.checks, record.changes) == (3, 2)
    assert look["change_rate"] == pytest.approx(records.change_rate(3, 2, record.observed_s))
    assert look["change_rate"] > 0


async def test_a_validator_that_changes_while_the_page_does_not_is_dropped(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/a", *(reply(b"<p>same", etag=f'"{number}"', last_modified=MODIFIED) for number in range(4)))
    async with crawling(valkey, web, tmp_path, recrawl=LATER) as crawl:
        await crawl.seed("/a")
        await crawl.run(lambda: len(crawl.records) == 4)
        record = crawl.records[-1]
    assert conditions(web, "/a") == [(None, None), ('"0"', MODIFIED.lower()), (None, MODIFIED.lower())]
    assert (record.checks, record.changes, record.validators) == (2, 0, 1)


async def test_a_new_owner_asks_with_the_validators_of_the_last(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/a", reply(b"<p>one", etag='"v1"'), reply(status="304 Not Modified"))
    async with crawling(valkey, web, tmp_path, recrawl=LATER) as crawl:
        await crawl.seed("/a")
        await crawl.run(lambda: len(crawl.records) == 2)
    async with crawling(valkey, web, tmp_path, node="n2", epoch=20, recrawl=LATER) as crawl:
        crawl.take_over()
        await crawl.run(lambda: len(crawl.records) == 1)
        assert (await crawl.look())["change_rate"] == 0.0
        assert [(line.visit, line.status) for line in crawl.lines()] == [("recrawl", 304)]
    assert conditions(web, "/a") == [(None, None), ('"v1"', None)]


# --- before the commit ----------------------------------------------------------------------------------------------


async def test_a_page_is_in_the_sink_before_it_is_committed_and_its_links_in_their_queues_with_it(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/", linking("/a", f"http://{OTHER}/x"))
    async with crawling(valkey, web, tmp_path, elsewhere={OTHER: "n9"}) as crawl:
        seen = []

        async def look() -> None:
            now, other = await crawl.look(), await crawl.store.look(OTHER)
            pages = crawl.pages() if crawl.sink_path.stat().st_size else {}
            seen.append((now["pages"], now["seen"], list(pages), other["head"] if other else []))

        crawl.before_commit = look
        await crawl.seed("/")
        await crawl.run(lambda: len(crawl.records) == 2)
        await look()
    assert seen == [(0, 1, [], []), (0, 1, [full("/")], []), (1, 2, [full("/")], [f"http://{OTHER}/x"])]


@pytest.mark.parametrize("when", ["before the offer", "after the offer"])
async def test_a_store_that_dies_before_a_commit_costs_a_wait(
    server: servers.Server, web: Web, tmp_path: Path, when: str
) -> None:
    async with crawling(local.redis_url(server), web, tmp_path, elsewhere={OTHER: "n9"}) as crawl:

        def crash() -> None:
            server.kill()
            asyncio.get_running_loop().call_later(0.2, server.start)

        _let_it_die(web, crawl, when, crash)
        await crawl.seed("/")
        await crawl.run()
        await _nothing_is_lost(web, crawl, fetches=1)


@pytest.mark.parametrize("when", ["before the offer", "after the offer"])
async def test_a_store_and_a_node_that_die_before_a_commit_cost_one_more_fetch_and_no_link(
    server: servers.Server, web: Web, tmp_path: Path, when: str
) -> None:
    url = local.redis_url(server)
    async with crawling(url, web, tmp_path, elsewhere={OTHER: "n9"}) as crawl:
        _let_it_die(web, crawl, when, server.kill)
        await crawl.seed("/")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.8):
                await crawl.run()
        assert len(crawl.records) == 1
    server.start()
    async with crawling(url, web, tmp_path, node="n2", epoch=20, elsewhere={OTHER: "n9"}) as crawl:
        crawl.take_over()
        await crawl.run()
        await _nothing_is_lost(web, crawl, fetches=2)


def _let_it_die(web: Web, crawl: Crawler, when: str, crash: Callable[[], None]) -> None:
    """Crash once, in the first visit of the page."""
    page = linking("/a", f"http://{OTHER}/x")

    async def crashing(visitor: origins.Visitor) -> None:
        crash()
        await visitor.send(page)

    async def crash_after() -> None:
        if web.asked("/"):
            crawl.before_commit = None
            crash()

    if when == "before the offer":
        web.put("/", crashing, page)
    else:
        web.put("/", page)
        crawl.before_commit = crash_after


async def _nothing_is_lost(web: Web, crawl: Crawler, *, fetches: int) -> None:
    look = await crawl.look()
    assert web.urls == [full("/robots.txt"), *[full("/")] * fetches, full("/a")]
    assert (look["pages"], look["pending"], look["seen"]) == (2, 0, 2)
    assert (await crawl.look(OTHER))["head"] == [f"http://{OTHER}/x"]


async def test_the_crawl_log_has_a_whole_line_for_each_request(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", robots_txt("Crawl-delay: 0.15", "Disallow: /no"))
    web.put("/a", linking("/b"))
    web.put("/b", reply(b"x" * 500, status="404 Not Found"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a", "/no")
        await crawl.run()
        raw = [msgspec.json.decode(line) for line in crawl.log_path.read_bytes().splitlines()]
    contract = {
        *("start_ms", "site", "url", "node", "epoch", "tenure", "status", "outcome", "bytes", "ms"),
        *("delay_ms", "due_term", "clock_error_ms"),
    }
    assert all(line.keys() == contract | {"visit"} for line in raw)
    assert [(line["url"], line["status"], line["outcome"], line["visit"]) for line in raw] == [
        (full("/robots.txt"), 200, "fetched", "robots"),
        (full("/a"), 200, "fetched", "first"),
        (full("/b"), 404, "fetched", "first"),
    ]
    assert [line["bytes"] for line in raw] == [45, len(linking("/b").partition(b"\r\n\r\n")[2]), 500]
    assert [(line["delay_ms"], line["due_term"]) for line in raw] == [
        (100, "claim"),
        (150, "crawl_delay"),
        (150, "crawl_delay"),
    ]
    assert {(line["site"], line["node"], line["epoch"], line["tenure"]) for line in raw} == {(SITE, "n1", 10, 10)}
    wall_less_boot_ms = clock.wall_ms() - clock.boot_s() * 1_000
    for line, arrival in zip(raw, web.log, strict=True):
        assert -1_000 < line["start_ms"] - wall_less_boot_ms - arrival.start_s * 1_000 <= 1
        assert 0 <= line["ms"] < 5_000
