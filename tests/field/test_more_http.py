"""More answers of an odd web, beside the listed cases: statuses, types, ranges, and bytes that nobody asked for."""

import asyncio
import dataclasses

import pytest

from node import politeness
from shared import clock, records
from tests.field.stage import OK, Scene, outcomes, sending
from tests.node import origins

PAGE = b"<title>kept</title><a href='/linked'>x</a>"


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1")


def page(*lines: str, status: str = "200 OK", body: bytes = PAGE) -> bytes:
    return head(*lines, f"Content-Length: {len(body)}", status=status) + body


@pytest.mark.parametrize(
    "late",
    [
        page("Content-Type: text/html", body=b"<title>poison</title>"),
        head("Connection: close", status="408 Request Time-out"),
        b"garbage",
        b"\r\n",
    ],
    ids=["answer", "408", "garbage", "line"],
)
async def test_what_a_server_says_unasked_answers_no_later_request(scene: Scene, late: bytes) -> None:
    sent = asyncio.Event()

    async def first(visitor: origins.Visitor) -> None:
        await visitor.send(page("Content-Type: text/html", body=b"first"))
        await asyncio.sleep(0.02)
        await visitor.send(late)
        sent.set()

    scene.put("/1", first)
    scene.put("/2", OK)
    scene.stage.delay_s = 0.0  # the origin counts what it says late as a part of its answer
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/1", priority=9)
        await crawl.run(lambda: bool(outcomes(crawl, scene.url("/1"))))
        await sent.wait()
        await scene.seed(crawl, "/2")
        await crawl.run()
        assert crawl.pages()[scene.url("/2")].title == "ok"
    assert len(scene.stage.asked("/2")) == 1


@pytest.mark.parametrize("status", ["000 None", "099 Low"])
async def test_a_status_below_100_is_a_protocol_error(scene: Scene, status: str) -> None:
    seen = await scene.one(page("Content-Type: text/html", status=status))
    assert seen.outcome == "failed:protocol"


@pytest.mark.parametrize("status", ["408 Request Timeout", "425 Too Early", "304 Not Modified"])
async def test_an_answer_that_says_nothing_of_the_page_is_asked_for_again(scene: Scene, status: str) -> None:
    scene.put("/p", sending(head("Content-Length: 0", status=status), close=False), page("Content-Type: text/html"))
    async with scene.crawl(politeness={"backoff_min_s": 0.1}) as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run(lambda: len(scene.stage.asked("/p")) == 2 and crawl.pages()[scene.url("/p")].title == "kept")
        assert await scene.aside(crawl) == {}


async def test_a_304_for_ever_to_a_page_never_seen_ends_by_name(scene: Scene) -> None:
    scene.put("/p", sending(head(status="304 Not Modified"), close=False))
    async with scene.crawl(politeness={"backoff_min_s": 0.05}, limits={"attempts_max": 3}) as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run(lambda: len(scene.stage.asked("/p")) == 3)
        await crawl.run(lambda: crawl.commits[-1].set_aside != ())
        assert await scene.aside(crawl) == {"status_304": 1}
    assert len(scene.stage.asked("/p")) == 3


@pytest.mark.parametrize(("told", "cut"), [("bytes 0-41/42", None), ("bytes 0-41/9000", "range"), (None, "range")])
async def test_a_part_that_nobody_asked_for_is_told_from_the_whole(scene: Scene, told: str | None, cut: str) -> None:
    lines = [f"Content-Range: {told}"] if told else []
    seen = await scene.one(page("Content-Type: text/html", 'ETag: "x"', *lines, status="206 Partial Content"))
    assert seen.page is not None
    assert (seen.page.title, seen.page.truncated) == ("kept", cut)
    (_, record), *_ = seen.commit.pages
    assert record.etag == (None if cut else '"x"'), "its validator would make the part permanent"


async def test_a_part_of_a_robots_txt_is_no_robots_txt(scene: Scene) -> None:
    part = b"User-agent: *\nDisallow:"
    scene.put("/robots.txt", page("Content-Range: bytes 0-22/99", status="206 Partial Content", body=part))
    scene.put("/p", OK)
    async with scene.crawl(politeness={"robots_error_ttl_s": 60.0}) as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run(lambda: bool(crawl.commits))
        assert (await crawl.look(scene.site))["robots"][f"http://{scene.site}"]["verdict"] == "disallow"
    assert scene.stage.paths == []


PAGE_TYPES: list[list[str]] = [
    ["text/html, text/html"],
    ["text/html; charset=utf-8, text/html"],
    ["text/plain", "text/html"],
    ["html"],
    ["*/*"],
    ["unknown/unknown"],
    [""],
    [],
    ["TEXT/HTML ;charset"],
    ['text/html; x="a,text/plain"'],
]
OTHER_TYPES = [["text/plain"], ["image/png"], ["text/html", "text/plain"], ["multipart/mixed"], ["text/html-ish"]]


async def test_a_page_is_known_by_whatever_its_type_amounts_to(scene: Scene) -> None:
    types = PAGE_TYPES + OTHER_TYPES
    for number, lines in enumerate(types):
        scene.put(f"/{number}", page(*(f"Content-Type: {one}" for one in lines)))
    async with scene.crawl() as crawl:
        await scene.seed(crawl, *(f"/{number}" for number in range(len(types))))
        await crawl.run()
        titles = [crawl.pages()[scene.url(f"/{number}")].title for number in range(len(types))]
    assert titles == ["kept"] * len(PAGE_TYPES) + [None] * len(OTHER_TYPES)


async def test_retry_after_counts_wherever_it_is_about_the_site(scene: Scene) -> None:
    pausing = ["302 Found", "403 Forbidden", "413 Content Too Large", "500 Internal Server Error", "504 Timeout"]
    going = ["200 OK", "404 Not Found", "410 Gone"]
    hosts = {status: f"http://s{status[:3]}-{scene.site}" for status in pausing + going}
    for status, host in hosts.items():
        scene.put(f"{host}/p", page("Retry-After: 1", "Location: /after", status=status, body=b""), OK)
        scene.put(f"{host}/after", OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, *(f"{host}/p" for host in hosts.values()))
        await crawl.run(lambda: all(outcomes(crawl, f"{host}/p") for host in hosts.values()))
        terms = {status: (await crawl.look(host.removeprefix("http://")))["due_term"] for status, host in hosts.items()}
        await scene.seed(crawl, *(f"{host}/after" for host in hosts.values()))
        await crawl.run(lambda: all(scene.stage.asked(f"{host}/after") for host in hosts.values()))
    assert terms == dict.fromkeys(pausing, "retry_after") | dict.fromkeys(going, "minimum")
    for status, host in hosts.items():
        gap_s = scene.stage.asked(f"{host}/after")[0].start_s - scene.stage.asked(f"{host}/p")[0].end_s
        assert gap_s >= 1.0 or status in going


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200\r\nContent-Type: text/html\r\nContent-Length: 42\r\n\r\n" + PAGE,
        b"HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: 42\n\n" + PAGE,
        b"\r\n" + page("Content-Type: text/html"),
        page("X: a", " folded", "Content-Type:\r\n text/html"),
        page("Content-Type : text/html"),
        head(status="103 Early Hints") + head(status="100 Continue") * 30 + page("Content-Type: text/html"),
        page("Content-Type: text/html", "Upgrade: h2,h2c", "Connection: Upgrade"),
        page("Content-Type: text/html", "Content-Encoding: identity"),
        page("Content-Type: text/html", "Content-Encoding: UTF-8", "Server : odd", "Date\t: x"),
        head("Content-Type: text/html", "Transfer-Encoding: Chunked", "Trailer: X")
        + b'002A ;a="b"\r\n%s\r\n00\r\nX: y\r\n\r\n' % PAGE,
        head("Content-Type: text/html", "Transfer-Encoding: identity") + PAGE,
    ],
    ids=range(11),
)
async def test_odd_forms_of_an_ordinary_answer_are_read(scene: Scene, sent: bytes) -> None:
    seen = await scene.one(sending(sent))
    assert seen.outcome == "fetched"
    assert seen.page is not None
    assert (seen.page.title, seen.page.truncated) == ("kept", None)


async def test_which_statuses_are_final_and_which_are_asked_again(scene: Scene) -> None:
    final = [205, 226, 305, 399, 401, 402, 407, 416, 417, 418, 421, 451, 499]
    failed = [500, 501, 511, 520, 599, 600, 799]
    for status in final + failed:
        scene.put(f"/{status}", page("Content-Type: text/html", "Location: /never", status=f"{status} Odd"))
    async with scene.crawl(politeness={"backoff_min_s": 30.0}) as crawl:
        await scene.seed(crawl, *(f"/{status}" for status in final + failed))
        await crawl.run(lambda: len(crawl.lines()) == 1 + len(final + failed))
        await crawl.run(lambda: sum(len(one.pages) for one in crawl.commits) == len(final + failed))
        later = {one.url for change in crawl.commits for one in change.later}
        assert await scene.aside(crawl) == {}
    assert later == {scene.url(f"/{status}") for status in failed}
    assert sorted(scene.stage.paths) == sorted(f"/{status}" for status in final + failed)


def test_no_pause_is_longer_than_the_longest() -> None:
    @dataclasses.dataclass
    class Settings:
        delay_min_s = 1.0
        delay_cap_s = 10.0
        duration_factor = 0.0
        jitter = 0.0
        backoff_min_s = 60.0
        backoff_cap_s = 600.0

    for outcome in (
        records.Redirected(status=302, location="/x", headers=(("Retry-After", "99999999"),)),
        records.Fetched(status=500, headers=(("retry-after", "99999999"),), body=b""),
    ):
        pace = politeness.after(
            outcome, settings=Settings(), crawl_delay_s=None, duration_s=0.0, backoff=0, now_ms=0, jitter01=0.0
        )
        assert (pace.due_in_s, pace.due_term) == (600.0, "retry_after")


async def test_a_stream_of_interim_answers_ends(scene: Scene) -> None:
    began_s = clock.boot_s()
    seen = await scene.one(sending(head(status="100 Continue"), forever=True))
    assert seen.outcome in {"failed:headers", "failed:protocol"}
    assert clock.boot_s() - began_s < 5.0
