"""The demo's origins answer by Host, honour validators, and log each request at its arrival."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from coordinator import small_web, web_demo
from coordinator.small_web import Kind, Page, Robots, Site, Validator, Web

HOME = "http://a.test/"
PAGES = (
    Page(HOME, Kind.PAGE, links=("http://a.test/x",), validator=Validator.BOTH),
    Page("http://a.test/fickle", Kind.PAGE, validator=Validator.FICKLE),
    Page("http://a.test/busy", Kind.PAGE, validator=Validator.ETAG, period_s=0.0),
    Page("http://a.test/dated", Kind.PAGE, validator=Validator.DATE),
    Page("http://a.test/moved/1", Kind.MOVED, links=(HOME,)),
    Page("http://a.test/gone/1", Kind.GONE),
    Page("http://a.test/broken/1", Kind.BROKEN),
)
GRAPH = Web(
    (
        Site("a.test", ("a.test", "www.a.test"), Robots.LATE, PAGES, seeded=True),
        Site("b.test", ("b.test",), Robots.ABSENT, (Page("http://b.test/", Kind.PAGE),), seeded=True),
    )
)


class Client:
    def __init__(self, session: aiohttp.ClientSession, port: int, log: io.StringIO) -> None:
        self.session, self.port, self.log = session, port, log

    async def get(self, url: str, **headers: str) -> tuple[int, str, "aiohttp.typedefs.LooseHeaders"]:
        _, _, host, path = url.split("/", 3)
        target = f"http://127.0.0.1:{self.port}/{path}"
        named = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with self.session.get(target, headers=named, allow_redirects=False) as response:
            return response.status, await response.text(), response.headers

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


@asynccontextmanager
async def served() -> AsyncIterator[Client]:
    log = io.StringIO()
    runner, port = await web_demo.serve(GRAPH, log)
    async with aiohttp.ClientSession() as session:
        yield Client(session, port, log)
    await runner.cleanup()


async def test_each_kind_of_page_answers_as_its_kind():
    async with served() as client:
        assert (await client.get(HOME))[:2] == (200, small_web.body(PAGES[0], 0))
        status, _, headers = await client.get("http://a.test/moved/1")
        assert (status, headers["Location"]) == (302, HOME)
        assert (await client.get("http://a.test/gone/1"))[0] == 404
        assert (await client.get("http://a.test/never-linked"))[0] == 404
        assert (await client.get("http://a.test/broken/1"))[0] == 500
        assert (await client.get("http://stranger.test/"))[0] == 421


async def test_late_robots_come_at_the_second_request_of_a_host():
    async with served() as client:
        url = "http://a.test/robots.txt"
        assert [(await client.get(url))[0] for _ in range(3)] == [503, 200, 200]
        assert (await client.get("http://www.a.test/robots.txt"))[0] == 503
        assert (await client.get("http://b.test/robots.txt"))[0] == 404


async def test_an_unchanged_page_is_304_by_either_validator():
    async with served() as client:
        _, _, first = await client.get(HOME)
        assert (await client.get(HOME, If_None_Match=first["ETag"]))[:2] == (304, "")
        assert (await client.get(HOME, If_None_Match='"other"', If_Modified_Since=first["Last-Modified"]))[0] == 200
        _, _, dated = await client.get("http://a.test/dated")
        assert (await client.get("http://a.test/dated", If_Modified_Since=dated["Last-Modified"]))[0] == 304
        assert (await client.get("http://a.test/dated", If_Modified_Since="nonsense"))[0] == 200


async def test_a_busy_page_changes_and_a_fickle_one_only_says_so():
    async with served() as client:
        for path, same_body in (("busy", False), ("fickle", True)):
            url = f"http://a.test/{path}"
            _, before, first = await client.get(url)
            status, after, second = await client.get(url, If_None_Match=first["ETag"])
            assert (status, before == after) == (200, same_body)
            assert first["ETag"] != second["ETag"]


async def test_the_log_has_a_line_for_each_request_in_order_of_arrival():
    async with served() as client:
        await client.get("http://www.a.test/robots.txt")
        await client.get(HOME, If_None_Match='"x"')
        await client.get("http://stranger.test/?q=1")
        lines = client.lines()
        assert [(line["site"], line["url"], line["status"], line["conditional"]) for line in lines] == [
            ("a.test", "http://www.a.test/robots.txt", 503, False),
            ("a.test", HOME, 200, True),
            (None, "http://stranger.test/?q=1", 421, False),
        ]
        stamps = [line["boot_s"] for line in lines]
        assert stamps == sorted(stamps)
