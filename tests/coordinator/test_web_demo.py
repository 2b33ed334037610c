"""The demo's origins answer by Host, honour validators, and log each request at its arrival."""

import asyncio
import contextlib
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

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
    serving = await web_demo.serve(GRAPH, log)
    async with aiohttp.ClientSession() as session:
        yield Client(session, serving.port, log)
    serving.close()


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


async def test_several_heads_in_one_packet_and_one_head_in_several_are_each_one_request():
    async with served() as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        head = b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n"
        writer.write(head + head + head[:20])
        await writer.drain()
        for _ in range(2):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            sized = (await reader.readuntil(b"\r\n\r\n")).lower().partition(b"content-length:")[2]
            await reader.readexactly(int(sized.split()[0]))
        writer.write(head[20:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        assert len(client.lines()) == 3


@pytest.mark.parametrize("head", [b"POST / HTTP/1.1\r\nHost: b.test\r\n\r\n", b"nonsense\r\n\r\n", b"x" * 200_000])
async def test_what_is_no_plain_get_ends_the_connection(head: bytes):
    async with served() as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(head)
        with contextlib.suppress(ConnectionError):
            assert (await reader.read())[:12] in {b"HTTP/1.1 400", b""}
        writer.close()
        assert client.lines() == []


async def test_a_request_that_waited_while_the_origins_were_busy_says_how_long():
    async with served() as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        await client.get(HOME)  # the other connection is accepted by now
        writer.get_extra_info("socket")._sock.send(b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n")
        busy_until_s = time.monotonic() + 0.2
        while time.monotonic() < busy_until_s:
            pass
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        prompt, late = (line["late_ms"] for line in client.lines())
        assert prompt < 20
        assert 180 <= late <= 400


def test_a_stamp_is_of_one_moment_even_if_the_process_is_put_aside_between_its_readings():
    now_s = iter([10.0, 10.025, 10.0254])  # put aside for 25 ms while the kernel is asked
    late_ms = iter([28, 28])
    assert web_demo._together(lambda: next(late_ms), lambda: next(now_s)) == (10.025, 28)
