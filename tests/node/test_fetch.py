"""One conditional GET: one request, nothing followed, everything bounded, and always an outcome."""

import asyncio
import socket
import struct
import zlib
from collections.abc import Callable

import pytest

from node import dns, fetch, reply
from shared import config, records
from tests.node import origins
from tests.node.origins import Gate, Origin, answering, fetcher, until

URL = "http://example.com/page"
BOMB = zlib.compress(bytes(20_000_000))


def header_lines(request: bytes) -> list[bytes]:
    return request.split(b"\r\n")[1:-2]


def reason_of(outcome: records.Outcome) -> str:
    assert isinstance(outcome, records.Failed | records.Refused), outcome
    return outcome.reason


async def fetched(fetches: fetch.Fetcher, url: str = URL, **options: int) -> records.Fetched:
    answer = await fetches.fetch(url, permit=Gate().permit(), **options)
    assert isinstance(answer.outcome, records.Fetched), answer.outcome
    return answer.outcome


async def test_a_page_comes_back_whole() -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch(URL, permit=Gate().permit())
        assert answer.outcome == records.Fetched(
            status=200, headers=(("Content-Length", "2"), ("Content-Type", "text/plain")), body=b"ok"
        )
        assert (answer.sent, answer.body_bytes, answer.content_type) == (True, 2, "text/plain")
        assert answer.start_boot_s <= answer.end_boot_s


async def test_the_request_says_who_asks_and_no_more() -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        await fetches.fetch("http://example.com/%7Ea?x=%41&y", permit=Gate().permit())
        assert origin.requests[0].startswith(b"GET /%7Ea?x=%41&y HTTP/1.1\r\n"), "byte for byte"
        assert header_lines(origin.requests[0]) == [
            b"Host: example.com",
            b"User-Agent: " + origins.AGENT.encode(),
            b"Accept: */*",
            b"Accept-Encoding: gzip, deflate, br, zstd",
        ]


async def test_both_validators_become_conditions() -> None:
    not_modified = b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n'
    async with Origin(answering(not_modified)) as origin, fetcher(origin.port) as fetches:
        date = "Sun, 06 Nov 1994 08:49:37 GMT"
        answer = await fetches.fetch(URL, permit=Gate().permit(), etag='W/"a"', last_modified=date)
        assert answer.outcome == records.NotModified(headers=(("ETag", '"a"'),))
        assert b'If-None-Match: W/"a"' in header_lines(origin.requests[0])
        assert b"If-Modified-Since: " + date.encode() in header_lines(origin.requests[0])


async def test_a_validator_that_no_header_can_carry_is_left_out() -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch(URL, permit=Gate().permit(), etag='"a\r\nX: y"', last_modified="\x01")
        assert isinstance(answer.outcome, records.Fetched)
        assert len(header_lines(origin.requests[0])) == 4


async def test_cookies_are_not_kept() -> None:
    cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
    async with Origin(answering(cookie)) as origin, fetcher(origin.port) as fetches:
        await fetched(fetches)
        await fetched(fetches)
        assert b"ookie" not in origin.requests[1]


async def test_a_flood_of_cookies_is_read_and_ignored() -> None:
    cookies = b"Set-Cookie: \xc3\xa9=\xff; path=/\r\n" + b"Set-Cookie: a{b}=c\r\n" * 500
    flood = b"HTTP/1.1 200 OK\r\n" + cookies + b"Content-Length: 2\r\n\r\nok"
    async with Origin(answering(flood)) as origin, fetcher(origin.port) as fetches:
        for _ in range(2):
            assert (await fetched(fetches)).body == b"ok"
        assert b"ookie" not in origin.requests[1]


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
async def test_a_redirect_is_returned_and_not_followed(status: int) -> None:
    redirect = b"HTTP/1.1 %d X\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n" % status
    async with Origin(answering(redirect)) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch(URL, permit=Gate().permit())
        assert isinstance(answer.outcome, records.Redirected)
        assert (answer.outcome.status, answer.outcome.location) == (status, "/next")
        assert len(origin.requests) == 1


@pytest.mark.parametrize("pooled", [False, True])
async def test_an_origin_that_hangs_up_is_asked_once(pooled: bool) -> None:
    async def script(visitor: origins.Visitor) -> None:
        if pooled and visitor.number == 1:
            await visitor.send(origins.OK)
        else:
            visitor.writer.close()

    async with Origin(script) as origin, fetcher(origin.port) as fetches:
        if pooled:
            await fetched(fetches)
        before = len(origin.requests)
        answer = await fetches.fetch(URL, permit=Gate().permit())
        assert reason_of(answer.outcome) == "disconnected"
        assert answer.sent
        await until(lambda: origin.closed == origin.connections)
        assert len(origin.requests) - before == 1
        assert origin.connections == 1


async def test_a_connection_is_used_again_and_its_idle_number_is_bounded() -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port, idle_max=8) as fetches:
        for host in range(12):
            await fetched(fetches, f"http://h{host}.example.com/")
        await until(lambda: origin.closed == 4)
        await fetched(fetches, "http://h11.example.com/")
        assert origin.connections == 12
        await fetched(fetches, "http://h0.example.com/")
        assert origin.connections == 13


async def test_a_lying_keep_alive_costs_nothing() -> None:
    async with Origin(answering(origins.OK, close=True)) as origin, fetcher(origin.port) as fetches:
        await fetched(fetches)
        pool = fetches._connections
        assert pool is not None
        await until(lambda: not pool.idle)
        await fetched(fetches)
        assert origin.connections == 2


# (answer, body, truncated): the connection is closed after each answer.
BODIES: list[tuple[str, bytes, bytes, str | None]] = [
    ("longer than declared", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nmore than three", b"mor", None),
    ("shorter than declared", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody", b"body", "connection"),
    ("a 204 with a body", b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody", b"", None),
    ("surplus after nothing", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nsurplus", b"", None),
    ("chunks cut short", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"hello", "connection"),
    ("until the end", b"HTTP/1.0 200 OK\r\n\r\nold", b"old", None),
    ("after a 103", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", b"a", None),
    ("after three 1xx", b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nab", b"", None),
    ("blank lines in the body", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na\r\n\r\nb\n\nc", b"a\r\n\r\nb\n\nc", None),
    ("bare newlines", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nokay", b"ok", None),
    ("999", b"HTTP/1.1 999 Request denied\r\nContent-Length: 2\r\n\r\nok", b"ok", None),
    ("plain labelled gzip", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain", b"plain", None),
    ("unknown coding word", b"HTTP/1.1 200 OK\r\nContent-Encoding: utf-8\r\nContent-Length: 5\r\n\r\nhello", b"hello", None),
    ("coding we cannot undo", b"HTTP/1.1 200 OK\r\nContent-Encoding: compress\r\nContent-Length: 5\r\n\r\nhello", b"", "encoding"),
    ("no choice but here", b"HTTP/1.1 300 Multiple Choices\r\nContent-Length: 2\r\n\r\nok", b"ok", None),
    ("one length told twice", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", b"ok", None),
    ("one length in a list", b"HTTP/1.1 200 OK\r\nX: y\r\ncontent-length: 2, 02\r\n\r\nok", b"ok", None),
    ("chunks beside a length", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok", None),
    ("chunks inside a coding", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"", "encoding"),
    ("a length in the body", b"HTTP/1.1 200 OK\r\n\r\nContent-Length: 1\r\nContent-Length: 1\r\n", b"Content-Length: 1\r\nContent-Length: 1\r\n", None),
    ("empty but labelled", b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 0\r\n\r\n", b"", None),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "body", "truncated"), [row[1:] for row in BODIES], ids=[row[0] for row in BODIES])
async def test_a_body_is_what_was_declared(answer: bytes, body: bytes, truncated: str | None) -> None:
    async with Origin(answering(answer, close=True)) as origin, fetcher(origin.port) as fetches:
        outcome = await fetched(fetches)
        assert (outcome.body, outcome.truncated) == (body, truncated)
        assert len(origin.requests) == 1


async def test_a_reset_in_a_body_without_length_is_no_end() -> None:
    async def script(visitor: origins.Visitor) -> None:
        await visitor.send(b"HTTP/1.1 200 OK\r\n\r\nbegun")
        await reset.wait()
        sock = visitor.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        visitor.writer.transport.abort()

    reset = asyncio.Event()
    async with Origin(script) as origin, fetcher(origin.port) as fetches:
        task = asyncio.create_task(fetches.fetch(URL, permit=Gate().permit()))
        await until(lambda: len(origin.requests) == 1)
        reset.set()
        outcome = (await asyncio.wait_for(task, 3)).outcome
        if isinstance(outcome, records.Failed):
            assert outcome.reason == "disconnected", "the reset overtook the head"
        else:
            assert isinstance(outcome, records.Fetched)
            assert outcome.truncated == "connection"


async def test_a_fault_between_chunks_keeps_what_came_and_does_not_wait() -> None:
    broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"
    async with Origin(answering(broken)) as origin, fetcher(origin.port) as fetches:
        answer = await asyncio.wait_for(fetches.fetch(URL, permit=Gate().permit()), 3)
        assert isinstance(answer.outcome, records.Fetched)
        assert (answer.outcome.body, answer.outcome.truncated) == (b"hello", "connection")


async def test_a_connection_on_which_surplus_may_follow_is_not_kept() -> None:
    """A body that comes late after a 304 would be taken for the answer to the next request."""
    lying = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n"
    async with Origin(answering(lying)) as origin, fetcher(origin.port) as fetches:
        for _ in range(2):
            answer = await fetches.fetch(URL, permit=Gate().permit())
            assert isinstance(answer.outcome, records.NotModified)
        assert origin.connections == 2


async def test_surplus_after_the_head_is_found_wherever_the_segments_break() -> None:
    """The head's end may come in any two pieces; the answer is the same."""
    answer = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nbody"

    async def script(visitor: origins.Visitor) -> None:
        cut = int(visitor.number) + answer.index(b"\r\n\r\n") - 2
        await visitor.send(answer[:cut])
        await asyncio.sleep(0.02)  # lets the first piece travel alone; the outcome must not depend on it
        await visitor.send(answer[cut:])
        visitor.writer.close()

    async with Origin(script) as origin, fetcher(origin.port) as fetches:
        for _ in range(8):
            answered = await fetches.fetch(URL, permit=Gate().permit())
            assert isinstance(answered.outcome, records.NotModified), answered.outcome


FAILURES: list[tuple[str, bytes, str]] = [
    ("nothing", b"", "disconnected"),
    ("half a head", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n", "disconnected"),
    ("only 100 Continue", b"HTTP/1.1 100 Continue\r\n\r\n", "disconnected"),
    ("HTTP/0.9", b"<html>old</html>", "protocol"),
    ("another protocol", b"ICY 200 OK\r\n\r\n", "protocol"),
    ("four digits", b"HTTP/1.1 1000 Strange\r\nContent-Length: 2\r\n\r\nok", "protocol"),
    ("NUL in a header", b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 2\r\n\r\nok", "protocol"),
    ("negative length", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nbody", "protocol"),
    ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\nbody", "protocol"),
    ("one huge header", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", "headers"),
    ("too many headers", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 600 + b"\r\n", "headers"),
    ("two other lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 4, 5\r\n\r\nbody", "protocol"),
    ("RTSP", b"RTSP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "protocol"),
    ("101 unasked", b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nframes", "protocol"),
]


@pytest.mark.parametrize(("answer", "reason"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
async def test_no_answer_is_a_failure_with_a_reason(answer: bytes, reason: str) -> None:
    async with Origin(answering(answer, close=True)) as origin, fetcher(origin.port) as fetches:
        answered = await fetches.fetch(URL, permit=Gate().permit())
        assert reason_of(answered.outcome) == reason
        assert len(origin.requests) == 1


@pytest.mark.parametrize("lines", [b"", b"Location:\r\n", b"Location: /a\r\nLocation: /b\r\n"])
async def test_a_redirect_that_names_no_one_place_is_a_redirect_to_nowhere(lines: bytes) -> None:
    answer = b"HTTP/1.1 302 M\r\n" + lines + b"Content-Length: 2\r\n\r\nok"
    async with Origin(answering(answer)) as origin, fetcher(origin.port) as fetches:
        outcome = (await fetches.fetch(URL, permit=Gate().permit())).outcome
        assert isinstance(outcome, records.Redirected)
        assert fetch.redirect_target(URL, outcome.location) == (None, "bad_redirect")


# (Location, what it comes to from URL)
TARGETS: list[tuple[str, tuple[str | None, str | None]]] = [
    ("/next", ("http://example.com/next", None)),
    ("//other.example/x", ("http://other.example/x", None)),
    ("https://user:pw@other.example", ("https://other.example/", None)),
    ("http%3A//scrapytest.org/a", ("http://example.com/http%3A//scrapytest.org/a", None)),
    ("http:///deep.example/a", ("http://deep.example/a", None)),
    (" \t/tab\tbed\n ", ("http://example.com/tabbed", None)),
    ("#top", ("http://example.com/page", None)),
    ("", (None, "bad_redirect")),
    ("  ", (None, "bad_redirect")),
    ("http://", (None, "bad_redirect")),
    ("https://:443/", (None, "bad_redirect")),
    ("http://example.org:non_int_port/", (None, "bad_redirect")),
    ("ht\ntp://exa mple/", (None, "bad_redirect")),
    ("http://" + "a" * 70 + ".example/", (None, "bad_redirect")),
    ("file:///etc/passwd", (None, "redirect_to_unsupported_scheme")),
    ("FILE:///etc/passwd", (None, "redirect_to_unsupported_scheme")),
    ("gopher://127.0.0.1:6379/_FLUSHALL", (None, "redirect_to_unsupported_scheme")),
    ("bluesky://d:i:d", (None, "redirect_to_unsupported_scheme")),
    ("call:+380", (None, "redirect_to_unsupported_scheme")),
    ("steam:code", (None, "redirect_to_unsupported_scheme")),
    ("java\tscript:x", (None, "redirect_to_unsupported_scheme")),
    ("data:text/html,x", (None, "redirect_to_unsupported_scheme")),
]


@pytest.mark.parametrize(("location", "target"), TARGETS)
def test_where_a_location_points(location: str, target: tuple[str | None, str | None]) -> None:
    assert fetch.redirect_target(URL, location) == target


async def test_a_redirects_body_costs_little_and_cannot_hold_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "REDIRECT_BODY_S", 0.2)
    for body, cut in ((forever(b"", b"x" * 65_536, 0), "size"), (forever(b"", b"x", 0.05), "time")):

        async def script(visitor: origins.Visitor, body: origins.Script = body) -> None:
            await visitor.send(b"HTTP/1.1 301 M\r\nLocation: /next\r\n\r\n")
            await body(visitor)

        async with Origin(script) as origin, fetcher(origin.port) as fetches:
            answer = await asyncio.wait_for(fetches.fetch(URL, permit=Gate().permit()), 3)
            assert isinstance(answer.outcome, records.Redirected)
            assert answer.raw_cut == cut
            assert len(answer.raw) <= reply.REDIRECT_BYTES_MAX


async def test_equal_locations_are_one() -> None:
    twice = b"HTTP/1.1 301 M\r\nLocation: /a\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n"
    async with Origin(answering(twice)) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch(URL, permit=Gate().permit())
        assert isinstance(answer.outcome, records.Redirected)


async def test_header_bytes_become_text_that_json_can_carry() -> None:
    answer = b"HTTP/1.1 301 M\r\nLocation: /caf\xe9\r\nX: \xc3\xa9\r\nContent-Length: 0\r\n\r\n"
    async with Origin(answering(answer)) as origin, fetcher(origin.port) as fetches:
        outcome = (await fetches.fetch(URL, permit=Gate().permit())).outcome
        assert isinstance(outcome, records.Redirected)
        assert (outcome.location, outcome.headers[1]) == ("/caf%E9", ("X", "é"))
        records.encode_json(outcome)


async def test_a_header_of_64_kib_is_read() -> None:
    long = b"HTTP/1.1 200 OK\r\nContent-Security-Policy: " + b"y" * 60_000 + b"\r\nContent-Length: 2\r\n\r\nok"
    async with Origin(answering(long)) as origin, fetcher(origin.port) as fetches:
        assert (await fetched(fetches)).body == b"ok"


async def test_a_large_body_comes_whole() -> None:
    """Reading pauses and goes on again below; nothing is lost to the cutting of heads."""
    body = b"\r\n\r\n".join(b"%d" % number for number in range(400_000))
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    async with Origin(answering(answer)) as origin, fetcher(origin.port) as fetches:
        assert (await fetched(fetches)).body == body
        assert (await fetched(fetches)).body == body
        assert origin.connections == 1


def forever(first: bytes, again: bytes, every_s: float) -> origins.Script:
    async def script(visitor: origins.Visitor) -> None:
        await visitor.send(first)
        while True:
            await visitor.send(again)
            await asyncio.sleep(every_s)

    return script


async def test_an_endless_body_ends_at_the_size_limit() -> None:
    script = forever(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65_536, 0)
    async with Origin(script) as origin, fetcher(origin.port, body_bytes_max=300_000) as fetches:
        outcome = await fetched(fetches)
        assert (len(outcome.body), outcome.truncated) == (300_000, "size")
        assert (await fetched(fetches, bytes_max=1_000)).body == b"x" * 1_000
        await until(lambda: origin.resets == 2)


async def test_a_bomb_costs_the_cap() -> None:
    bomb = b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB
    async with Origin(answering(bomb)) as origin, fetcher(origin.port, body_bytes_max=100_000) as fetches:
        outcome = await fetched(fetches)
        assert (len(outcome.body), outcome.truncated) == (100_000, "size")


async def test_a_dripping_body_ends_at_the_total_time_and_is_kept() -> None:
    script = forever(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x", 0.05)
    async with Origin(script) as origin, fetcher(origin.port, total_s=0.4) as fetches:
        outcome = await fetched(fetches)
        assert outcome.truncated == "time"
        assert outcome.body.startswith(b"x")


SLOW: list[tuple[str, Callable[[], origins.Script]]] = [
    ("dripping headers", lambda: forever(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.05)),
    ("one endless header", lambda: forever(b"HTTP/1.1 200 OK\r\nX: ", b"y", 0.05)),
    ("100 Continue for ever", lambda: forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05)),
]


@pytest.mark.parametrize("script", [row[1] for row in SLOW], ids=[row[0] for row in SLOW])
async def test_headers_that_never_end_do(script: Callable[[], origins.Script]) -> None:
    async with Origin(script()) as origin, fetcher(origin.port, total_s=0.4) as fetches:
        answer = await asyncio.wait_for(fetches.fetch(URL, permit=Gate().permit()), 3)
        assert reason_of(answer.outcome) == "timeout"


async def test_a_flood_of_headers_is_cut_off() -> None:
    script = forever(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 10_000, 0)
    async with Origin(script) as origin, fetcher(origin.port) as fetches:
        answer = await asyncio.wait_for(fetches.fetch(URL, permit=Gate().permit()), 5)
        assert reason_of(answer.outcome) == "headers"


async def test_a_flood_of_interim_answers_is_cut_off() -> None:
    script = forever(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 2_000, 0)
    async with Origin(script) as origin, fetcher(origin.port) as fetches:
        answer = await asyncio.wait_for(fetches.fetch(URL, permit=Gate().permit()), 5)
        assert reason_of(answer.outcome) in {"headers", "protocol"}


@pytest.mark.parametrize("drip", [b"HTTP/1.1 200 OK\r\nX: y\r\n", b"HTTP/1.1 102 Processing\r\n\r\n"])
async def test_the_head_has_a_limit_of_its_own(drip: bytes) -> None:
    script = forever(drip[:20], drip[20:] + drip[:20], 0.05)
    async with Origin(script) as origin, fetcher(origin.port, connect_s=0.1, first_byte_s=0.3) as fetches:
        answer = await asyncio.wait_for(fetches.fetch(URL, permit=Gate().permit()), 3)
        assert reason_of(answer.outcome) == "timeout"


async def test_a_slow_body_is_not_held_to_the_limit_of_the_head() -> None:
    async def script(visitor: origins.Visitor) -> None:
        await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.05)
            await visitor.send(b"x")

    async with Origin(script) as origin, fetcher(origin.port, connect_s=0.1, first_byte_s=0.2) as fetches:
        assert await fetched(fetches) == records.Fetched(
            status=200, headers=(("Content-Length", "10"),), body=b"x" * 10
        )


async def test_what_is_not_wanted_ends_after_its_head() -> None:
    script = forever(b"HTTP/1.1 200 OK\r\nContent-Type: Audio/MPEG; x=y\r\n\r\n", b"x" * 65_536, 0)
    asked: list[str | None] = []

    def wanted(kind: str | None) -> bool:
        asked.append(kind)
        return False

    async with Origin(script) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch(URL, permit=Gate().permit(), wanted=wanted)
        assert isinstance(answer.outcome, records.Fetched)
        assert (answer.outcome.body, answer.outcome.truncated, answer.raw_cut) == (b"", "type", "type")
        assert (answer.body_bytes, asked) == (0, ["Audio/MPEG; x=y"])
        await until(lambda: origin.closed == 1)


async def test_a_redirect_and_a_304_are_not_asked_whether_they_are_wanted() -> None:
    for head in (b"304 X\r\n", b"301 X\r\nLocation: /a\r\nContent-Length: 0\r\n"):
        async with Origin(answering(b"HTTP/1.1 " + head + b"\r\n")) as origin, fetcher(origin.port) as fetches:
            outcome = (await fetches.fetch(URL, permit=Gate().permit(), wanted=lambda _: False)).outcome
            assert isinstance(outcome, records.NotModified | records.Redirected)


async def test_lengths_told_twice_leave_no_connection_behind() -> None:
    """What follows such an answer is read in two ways by two readers (RFC 9112 section 6.3)."""
    both = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    async with Origin(answering(both)) as origin, fetcher(origin.port) as fetches:
        for _ in range(2):
            assert (await fetched(fetches)).body == b"ok"
        assert origin.connections == 2


async def test_a_first_byte_that_does_not_come_is_a_timeout() -> None:
    async def silent(_: origins.Visitor) -> None:
        await asyncio.Event().wait()

    async with Origin(silent) as origin, fetcher(origin.port, first_byte_s=0.2) as fetches:
        answer = await asyncio.wait_for(fetches.fetch(URL, permit=Gate().permit()), 3)
        assert reason_of(answer.outcome) == "timeout"


async def test_a_refused_connection_is_a_failed_connect() -> None:
    async with Origin(answering(origins.OK)) as origin:
        port = origin.port
    async with fetcher(port) as fetches:
        answer = await fetches.fetch(URL, permit=Gate().permit())
        assert reason_of(answer.outcome) == "connect"
        assert answer.sent


@pytest.mark.parametrize("url", ["http:///nowhere", "ftp://example.com/", "http://exa mple.com/", "nonsense", "http://example.com/a b", "http://example.com/\r\nX: y", "http://bücher.de/", "http://example.com:99999/"])  # fmt: skip
async def test_what_is_no_url_is_an_outcome_and_sends_nothing(url: str) -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch(url, permit=Gate().permit())
        assert answer.outcome == records.Refused(reason="url")
        assert not answer.sent
        assert origin.connections == 0


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:{port}/", "private_address"),
        ("http://[::ffff:127.0.0.1]:{port}/", "private_address"),
        ("http://localhost:{port}/", "private_address"),
        ("http://127.0.0.1:22/", "port"),
    ],
)
async def test_private_addresses_are_refused_before_any_packet(url: str, reason: str) -> None:
    async with Origin(answering(origins.OK)) as origin:
        fetches = fetch.Fetcher(user_agent=origins.AGENT, limits=config.Limits(), resolver=dns.Resolver(), idle_max=4)
        await fetches.start()
        gate = Gate()
        answer = await fetches.fetch(url.format(port=origin.port), permit=gate.permit())
        await fetches.close()
        assert answer.outcome == records.Refused(reason=reason)
        assert not answer.sent
        assert (gate.asked, origin.connections) == (0, 0)


async def test_private_addresses_are_fetched_where_allowed() -> None:
    async with Origin(answering(origins.OK)) as origin:
        fetches = fetch.Fetcher(
            user_agent=origins.AGENT,
            limits=config.Limits(),
            resolver=dns.Resolver(allow_private=True),
            idle_max=4,
        )
        await fetches.start()
        answer = await fetches.fetch(f"http://127.0.0.1:{origin.port}/", permit=Gate().permit())
        await fetches.close()
        assert isinstance(answer.outcome, records.Fetched)


async def test_after_close_a_fetch_is_still_an_outcome() -> None:
    async with Origin(answering(origins.OK)) as origin:
        async with fetcher(origin.port) as fetches:
            pass
        answer = await fetches.fetch(URL, permit=Gate().permit())
        assert isinstance(answer.outcome, records.Failed)
        assert not answer.sent
