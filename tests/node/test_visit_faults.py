"""Whatever a site answers, or does not, is an outcome that its record keeps; and what we stop ourselves costs nothing."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node import dns, fetch, ownership
from shared import clock
from tests.node import origins
from tests.node.crawler import SITE, Answer, Crawler, Web, crawling, full, hang_up, linking, moved, reply, robots_txt

OK = reply(b"<p>ok")
GARBAGE = bytes(range(256)) * 20
LATIN = "<title>Ça été</title><a href='/l'>x</a>".encode("latin-1")


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    async with made.origin:
        yield made


async def endless(visitor: origins.Visitor) -> None:
    await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<a href='/l'>")
    while True:
        await visitor.send(b"x" * 65_536)


async def dripping(visitor: origins.Visitor) -> None:
    await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<a href='/l'>")
    while True:
        await visitor.send(b"x")
        await asyncio.sleep(0.02)


async def silent(visitor: origins.Visitor) -> None:
    await visitor.reader.read(1)


async def torn(visitor: origins.Visitor) -> None:
    await visitor.send(reply(b"<a href='/l'>" + b"x" * 500)[:-100])
    visitor.writer.close()


@dataclasses.dataclass(frozen=True)
class Case:
    """One strange page: what the crawl log, the sink and the site's record say of it."""

    answer: Answer
    outcome: str = "fetched"
    status: int | None = 200
    sink: dict[str, Any] | None = dataclasses.field(default_factory=dict)
    offered: int = 1
    aside: dict[str, int] = dataclasses.field(default_factory=dict)


CASES = {
    "endless": Case(endless, sink={"truncated": "size", "bytes": 200_000}),
    "dripping": Case(dripping, sink={"truncated": "time"}),
    "torn": Case(torn, sink={"truncated": "connection", "bytes": 413}),
    "binary": Case(reply(GARBAGE, kind="image/png"), sink={"title": None, "bytes": 5_120}, offered=0),
    "binary that says it is HTML": Case(reply(GARBAGE), sink={"bytes": 5_120}, offered=0),
    "wrong charset": Case(reply(LATIN, kind="text/html; charset=utf-8"), sink={"charset": "utf-8"}),
    "no such charset": Case(reply(LATIN, kind="text/html; charset=klingon"), sink={"title": "Ça été"}),
    "empty": Case(reply(), sink={"bytes": 0, "title": None, "truncated": None}, offered=0),
    "garbage links": Case(
        linking("http://[bad", "http://exa mple.com/", "//", "javascript:x", "mailto:a", "/l", "/%zz%"),
        sink={"bad_links": 3, "links": (full("/l"), full("/%zz%"))},
        offered=2,
    ),
    "garbage redirect": Case(
        moved("http://[bad"), "redirected", 301, {"redirect": "http://[bad"}, 0, {"bad_redirect": 1}
    ),
    "redirect to no web page": Case(
        moved("ftp://example.com/"), "redirected", 301, {}, 0, {"redirect_to_unsupported_scheme": 1}
    ),
    "no HTTP": Case(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "failed:protocol", None, None, 0, {"protocol": 1}),
    "hung up": Case(hang_up, "failed:disconnected", None, None, 0, {"disconnected": 1}),
    "no first byte": Case(silent, "failed:timeout", None, None, 0, {"timeout": 1}),
    "flood of headers": Case(
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 600 + b"\r\n", "failed:headers", None, None, 0, {"headers": 1}
    ),
    "not found": Case(reply(b"<a href='/l'>", status="404 Not Found"), status=404, sink={"status": 404}, offered=0),
    "broken": Case(reply(status="500 Broken"), status=500, sink={"status": 500}, offered=0, aside={"status_500": 1}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_strange_answer_is_one_request_and_an_outcome(
    valkey: str, web: Web, tmp_path: Path, case: Case
) -> None:
    web.put("/strange", case.answer)
    limits = {"body_bytes_max": 200_000, "total_s": 0.4, "first_byte_s": 0.3, "attempts_max": 1}
    async with crawling(valkey, web, tmp_path, limits=limits) as crawl:
        await crawl.seed("/strange")
        await crawl.run(lambda: len(crawl.records) == 2)
        look = await crawl.look()
        _, line = crawl.lines()
        page = crawl.pages().get(full("/strange"))
    assert len(web.asked("/strange")) == 1
    assert (line.url, line.outcome, line.status, line.visit) == (full("/strange"), case.outcome, case.status, "first")
    assert (page is None) is (case.sink is None)
    for name, value in (case.sink or {}).items():
        assert getattr(page, name) == value
    assert (look["seen"], look["set_aside"], look["pages"]) == (1 + case.offered, case.aside, 1)
    assert (look["pending"], look["later"]) == (case.offered, 0)


# --- no answer at all -----------------------------------------------------------------------------------------------


async def _without_origin(web: Web, crawl: Crawler) -> None:
    """From robots.txt on, nobody listens any more."""
    await crawl.run(lambda: len(crawl.records) == 1)
    await web.origin.__aexit__()


async def _without_name(web: Web, crawl: Crawler) -> None:
    """From robots.txt on, the name is in no DNS: its server is not there."""
    await crawl.run(lambda: len(crawl.records) == 1)
    nowhere = dns.Resolver(connect_to="nowhere.invalid:1", nameservers=["127.0.0.1:1"])
    other = fetch.Fetcher(user_agent=origins.AGENT, limits=crawl.settings.limits, resolver=nowhere, idle_max=2)
    await other.start()
    await crawl.tools.fetcher.close()
    crawl.tools.fetcher = other


@pytest.mark.parametrize(
    ("fault", "reason", "lines", "pauses_s"),
    [
        (_without_origin, "connect", ["first", "retry", "retry"], [0.1, 0.2, 0.4]),
        # A name that is in no DNS says nothing about the site's servers: its page waits, its sisters do not.
        (_without_name, "dns", [], [0.1, 0.1, 0.1]),
    ],
    ids=["connection refused", "no DNS"],
)
async def test_without_an_answer_the_pauses_grow_and_then_the_url_is_set_aside(
    valkey: str, tmp_path: Path, fault: Any, reason: str, lines: list[str], pauses_s: list[float]
) -> None:
    web = Web()
    await web.origin.__aenter__()
    async with crawling(valkey, web, tmp_path, limits={"attempts_max": 3}) as crawl:
        await crawl.seed("/a")
        await fault(web, crawl)
        await crawl.run()
        look = await crawl.look()
        # What was never sent is no request: the crawl log has no line of it.
        assert [(line.outcome, line.visit) for line in crawl.lines()[1:]] == [
            (f"failed:{reason}", visit) for visit in lines
        ]
        await crawl.tools.fetcher.close()
    assert web.urls == [full("/robots.txt")]
    assert [change.due_in_s for change in crawl.commits[1:]] == pauses_s
    assert [record.due_term for record in crawl.records[1:]] == ["minimum" if s == 0.1 else "backoff" for s in pauses_s]
    assert [[one.seconds for one in change.later] for change in crawl.commits] == [[], [0.2], [0.4], []]
    assert (look["set_aside"], look["pending"], look["later"], look["pages"]) == ({reason: 1}, 0, 0, 3)
    await web.origin.__aexit__()


async def test_a_page_that_is_answered_at_last_begins_anew(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/a", hang_up, reply(status="500 Broken"), OK)
    async with crawling(valkey, web, tmp_path, limits={"attempts_max": 3}) as crawl:
        await crawl.seed("/a")
        await crawl.run()
        look = await crawl.look()
        (_, after) = crawl.commits[-1].pages[0]
        assert [(line.outcome, line.status, line.visit) for line in crawl.lines()[1:]] == [
            ("failed:disconnected", None, "first"),
            ("fetched", 500, "retry"),
            ("fetched", 200, "retry"),
        ]
    assert (after.attempts, after.status) == (0, 200)
    assert (look["set_aside"], look["backoff"], look["pages"]) == ({}, 0, 3)


# --- what we stop ourselves -----------------------------------------------------------------------------------------


async def test_a_site_lost_after_robots_txt_is_not_asked_for_a_page_and_its_url_stays(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/robots.txt", robots_txt("Disallow: /no"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/no", "/a")
        await crawl.run(lambda: len(crawl.records) == 1)

        def lose(_: ownership.Held) -> None:
            crawl.lose()
            assert crawl.effects[-1] != ownership.Acknowledge(11), "an ack before the visit has ended"

        crawl.on_start = lose
        await crawl.run(lambda: ownership.Acknowledge(11) in crawl.effects)
        look = await crawl.look()
        # What was decided on the way is kept; the page was not sent, and waits for the next owner.
        assert (look["head"], look["set_aside"], look["pages"]) == ([full("/a")], {"robots": 1}, 0)
        assert [line.visit for line in crawl.lines()] == ["robots"]
    assert web.urls == [full("/robots.txt")]
    async with crawling(valkey, web, tmp_path, node="other", epoch=20) as crawl:
        crawl.take_over()
        await crawl.run()
        assert [(line.url, line.visit) for line in crawl.lines()] == [(full("/a"), "first")]
    assert web.urls == [full("/robots.txt"), full("/a")]


async def test_a_site_lost_between_two_hops_of_robots_txt_is_left_alone(valkey: str, web: Web, tmp_path: Path) -> None:
    async with crawling(valkey, web, tmp_path) as crawl:

        async def lose(visitor: origins.Visitor) -> None:
            await visitor.send(moved(f"http://www.{SITE}/robots.txt"))
            crawl.lose()

        web.put("/robots.txt", lose, robots_txt())
        await crawl.seed("/a")
        await crawl.run(lambda: ownership.Acknowledge(11) in crawl.effects)
        look = await crawl.look()
        assert (look["pending"], look["robots"], look["pages"]) == (1, {}, 0)
    assert web.urls == [full("/robots.txt")]


async def test_a_request_that_is_aborted_leaves_its_url_and_owes_the_full_delay(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    async with crawling(valkey, web, tmp_path) as crawl:

        async def aborted(_: origins.Visitor) -> None:
            assert crawl.fetcher.abort(SITE) == 1

        web.put("/a", aborted, OK)
        await crawl.seed("/a", "/b")
        await crawl.run(lambda: len(web.asked("/a")) == 1)
        look = await crawl.look()
        assert (look["head"], look["later"], look["backoff"]) == ([full("/a"), full("/b")], 0, 0)
        assert look["due_ms"] - look["last_fetch_ms"] >= 100
        await crawl.run()
        assert [(line.outcome, line.visit) for line in crawl.lines()[1:]] == [
            ("failed:aborted", "first"),
            ("fetched", "first"),
            ("fetched", "first"),
        ]
    assert web.urls[1:] == [full("/a"), full("/a"), full("/b")]


async def test_a_request_before_the_due_is_refused_and_tried_again_when_it_has_come(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    until_s = []
    async with crawling(valkey, web, tmp_path) as crawl:

        def put_off(held: ownership.Held) -> None:
            held.ready_s = clock.boot_s() + 0.2
            until_s.append(held.ready_s)
            crawl.on_start = lambda _: None

        crawl.on_start = put_off
        await crawl.seed("/a")
        await crawl.run()
    assert web.urls == [full("/robots.txt"), full("/a")]
    assert web.log[0].start_s >= until_s[0]


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://127.0.0.1:{port}/a", "private_address"), ("http://127.0.0.1:22/a", "port")],
)
async def test_an_address_that_is_refused_sets_its_urls_aside_with_that_reason(
    valkey: str, web: Web, tmp_path: Path, url: str, reason: str
) -> None:
    async with crawling(valkey, web, tmp_path, resolver=dns.Resolver()) as crawl:
        await crawl.seed(url.format(port=web.origin.port), url.format(port=web.origin.port) + "/b")
        await crawl.run()
        look = await crawl.look("127.0.0.1")
        assert (look["set_aside"], look["pending"], look["later"], look["robots"]) == ({reason: 2}, 0, 0, {})
        assert crawl.lines() == []
    assert web.origin.connections == 0
