"""What an archive is given is what was on the wire: request, head and body as they were, the transfer coding aside."""

import asyncio
import gzip
import os
import socket
import zlib

import pytest

from node import dns, fetch, reply
from shared import config, records
from tests.conformance import http as answers
from tests.node import origins
from tests.node.origins import Gate, Origin, answering, fetcher, until

URL = "http://example.com/page"
PAGE = b"<title>page</title>" + b"text " * 5_000
GZIP = gzip.compress(PAGE, mtime=0)


def chunked(data: bytes, size: int = 1_000) -> bytes:
    pieces = [data[begin : begin + size] for begin in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


async def asked(answer: bytes, *, url: str = URL, close: bool = True, **limits: int) -> tuple[fetch.Answer, Origin]:
    async with Origin(answering(answer, close=close)) as origin, fetcher(origin.port, **limits) as fetches:
        return await asyncio.wait_for(fetches.fetch(url, permit=Gate().permit()), 5), origin


HEADS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX:  two  spaces \r\n\r\n",
    b"HTTP/1.1 200 \xc3\xa9t\xe9\r\nX: a\x01b\r\nY: caf\xe9\r\nCONTENT-length: 2\r\n\r\n",
    b"HTTP/1.0 999 Request denied\nContent-Length: 2\n\n",
    b"HTTP/1.1 200\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\nSet-Cookie: a=b\r\nSet-Cookie: a=b\r\n\r\n",
]


@pytest.mark.parametrize("head", HEADS)
async def test_a_head_is_kept_byte_for_byte(head: bytes) -> None:
    answer, origin = await asked(head + b"ok")
    assert (answer.head, answer.raw) == (head, b"ok")
    assert answer.request == origin.requests[0]
    assert answer.address == "127.0.0.1"


@pytest.mark.parametrize("step", [1, 3, 17])
async def test_it_is_kept_however_the_segments_break(step: int) -> None:
    for head in HEADS:
        got = await answers.ask_all({"one": b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n\r\n" + head + b"ok"}, step=step)
        assert (got["one"].head, got["one"].raw) == (head, b"ok")


async def test_each_answer_of_a_kept_connection_has_its_own() -> None:
    heads = [b"HTTP/1.1 200 OK\r\nX: %d\r\nContent-Length: 2\r\n\r\n" % number for number in range(3)]
    async with Origin(answering(*(head + b"ok" for head in heads))) as origin, fetcher(origin.port) as fetches:
        for number, head in enumerate(heads):
            answer = await fetches.fetch(f"{URL}?{number}", permit=Gate().permit())
            assert (answer.head, answer.raw, answer.request) == (head, b"ok", origin.requests[number])
        assert origin.connections == 1


async def test_a_request_is_kept_with_the_target_that_was_written() -> None:
    answer, origin = await asked(origins.OK, url="http://example.com/a?b=c?d'e|f")
    assert answer.request == origin.requests[0]
    assert answer.request.startswith(b"GET /a?b=c?d'e|f HTTP/1.1\r\nHost: example.com\r\n")


# (answer, raw, body, cut): the transfer coding is off the raw bytes, the content coding is not.
BODIES = [
    (b"Transfer-Encoding: chunked\r\n\r\n" + chunked(PAGE), PAGE, PAGE, None),
    (b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(GZIP), GZIP, PAGE, None),
    (b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked(GZIP), PAGE, PAGE, None),
    (
        b"Content-Encoding: deflate\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
        + chunked(gzip.compress(zlib.compress(PAGE))),
        zlib.compress(PAGE),
        PAGE,
        None,
    ),
    (b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain", b"plain", b"plain", None),
    (b"Content-Encoding: compress\r\nContent-Length: 5\r\n\r\n\x1f\x9dabc", b"\x1f\x9dabc", b"", None),
    (b"Content-Encoding: gzip\r\n\r\n" + GZIP[:-10], GZIP[:-10], None, None),
    (b"Content-Encoding: gzip\r\nContent-Length: 99\r\n\r\n" + GZIP[:30], GZIP[:30], None, "connection"),
    (b"Content-Length: 9\r\n\r\nbody", b"body", b"body", "connection"),
    (b"Content-Length: 3\r\n\r\nmore than three", b"mor", b"mor", None),
]


@pytest.mark.parametrize(("answer", "raw", "body", "cut"), BODIES, ids=range(len(BODIES)))
async def test_raw_bytes_are_without_the_transfer_coding(
    answer: bytes, raw: bytes, body: bytes | None, cut: str | None
) -> None:
    got, _ = await asked(b"HTTP/1.1 200 OK\r\n" + answer)
    assert isinstance(got.outcome, records.Fetched)
    assert (got.raw, got.raw_cut) == (raw, cut)
    assert body is None or got.outcome.body == body
    if body == raw and b"gzip, chunked" not in answer:
        assert got.raw is got.outcome.body, "one copy in memory"


async def test_what_no_decoder_can_read_is_read_on_for_the_archive() -> None:
    broken = GZIP[:20] + os.urandom(200_000)
    got, _ = await asked(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + broken)
    assert isinstance(got.outcome, records.Fetched)
    assert (got.outcome.truncated, got.raw, got.raw_cut) == ("encoding", broken, None)


@pytest.mark.parametrize("coding", [b"", b"Content-Encoding: compress\r\n", b"Content-Encoding: gzip\r\n"])
async def test_raw_bytes_have_the_bodys_limit(coding: bytes) -> None:
    noise = os.urandom(1_000_000)
    sent = gzip.compress(noise) if b"gzip" in coding else noise
    got, _ = await asked(b"HTTP/1.1 200 OK\r\n" + coding + b"\r\n" + sent, body_bytes_max=100_000)
    assert isinstance(got.outcome, records.Fetched)
    assert got.raw_cut == "size"
    assert sent.startswith(got.raw)
    assert 100_000 <= len(got.raw) <= 100_000 + reply.RAW_SLACK_BYTES
    if not coding:
        assert got.outcome.body == noise[:100_000]


async def test_a_redirect_has_its_body_and_a_304_its_head() -> None:
    head = b"HTTP/1.1 301 M\r\nLocation: /a\r\nContent-Length: 5\r\n\r\n"
    got, _ = await asked(head + b"moved")
    assert (got.head, got.raw, got.raw_cut) == (head, b"moved", None)
    head = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"
    got, _ = await asked(head + b"moved")
    assert (got.head, got.raw) == (head, b"")


@pytest.mark.parametrize(
    "answer", [b"", b"ICY 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", b"HTTP/1.1 200 OK\r\n"]
)
async def test_what_is_no_answer_has_no_head(answer: bytes) -> None:
    got, origin = await asked(answer)
    assert (got.head, got.raw) == (b"", b"")
    assert got.request == origin.requests[0]


async def test_what_was_not_sent_has_no_request_and_no_address() -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        got = await fetches.fetch(URL, permit=Gate(start="not_due").permit())
        assert (got.sent, got.request, got.address, got.head) == (False, b"", None, b"")
        await fetches.fetch(URL, permit=Gate().permit())
        got = await fetches.fetch(URL, permit=Gate(start="not_due").permit())
        assert (got.sent, got.request, got.address, got.head) == (False, b"", None, b"")


async def test_an_address_of_six_is_told_in_full() -> None:
    """A literal, over IPv6 from end to end."""
    server = await asyncio.start_server(_answer, "::1", 0, family=socket.AF_INET6)
    port = server.sockets[0].getsockname()[1]
    fetches = fetch.Fetcher(
        user_agent=origins.AGENT, limits=config.Limits(), resolver=dns.Resolver(allow_private=True), idle_max=4
    )
    await fetches.start()
    got = await fetches.fetch(f"http://[::1]:{port}/", permit=Gate().permit())
    await fetches.close()
    server.close()
    assert isinstance(got.outcome, records.Fetched)
    assert got.address == "::1"
    assert f"Host: [::1]:{port}\r\n".encode() in got.request


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(origins.OK)
    writer.close()


async def test_a_kept_connection_is_not_used_for_another_address() -> None:
    """The address that was judged is the one that is asked (rebinding through the pool)."""

    class Turning(dns.Resolver):
        ip = "127.0.0.1"

        async def lookup(self, host: str, port: int) -> dns.Address:
            del host, port
            return dns.Address(self.ip, origin.port)

    async with Origin(answering(origins.OK)) as origin:
        resolver = Turning()
        fetches = fetch.Fetcher(user_agent=origins.AGENT, limits=config.Limits(), resolver=resolver, idle_max=4)
        await fetches.start()
        assert (await fetches.fetch(URL, permit=Gate().permit())).address == "127.0.0.1"
        resolver.ip = "127.0.0.2"  # nobody listens there
        got = await fetches.fetch(URL, permit=Gate().permit())
        assert isinstance(got.outcome, records.Failed)
        assert (got.outcome.reason, got.address, len(origin.requests)) == ("connect", "127.0.0.2", 1)
        await until(lambda: origin.closed == 1)
        await fetches.close()


async def test_an_origin_that_goes_silent_after_any_answer_ends_in_time() -> None:
    rows = {name: raw for name, raw in answers.answers().items() if name.startswith("llhttp")}

    async def script(visitor: origins.Visitor) -> None:
        await visitor.send(rows[names[int(visitor.number) - 1]])
        await asyncio.Event().wait()

    names = list(rows)
    async with Origin(script) as origin, fetcher(origin.port, first_byte_s=0.2, total_s=1.0) as fetches:
        got = await asyncio.gather(
            *(fetches.fetch(f"http://h{n}.example.com/", permit=Gate().permit()) for n in range(len(names)))
        )
        assert [fault for answer in got if (fault := answers.listed(answer))] == []
        assert len(origin.requests) == len(names)
