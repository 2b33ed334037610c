"""Answers made of odd pieces, over a real socket: one request each, an end in time, and never another request's bytes."""

import asyncio
import dataclasses
import gzip
import itertools
import re
import time
from collections import Counter

import pytest
from hypothesis import strategies as st

from node import fetch
from shared import errors, records, urls
from tests.fuzz import budget, raw_web, test_urls
from tests.node import origins

FAILURES = {"disconnected", "protocol", "headers", "timeout"}
CUTS = {None, "size", "time", "connection", "encoding"}
TOTAL_S = 0.6
LATE_S = 4.0
BYTES_MAX = 100_000
STRETCH_S = 0.5  # of CPU; a view lease outlasts it many times
RIGHT = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright"
FORGED = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
STATUS = [
    *(b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 204 x", b"HTTP/1.1 304 x", b"HTTP/1.1 301 x", b"HTTP/1.1 503 x"),
    *(
        b"HTTP/1.1 100 Continue",
        b"HTTP/1.1 103 Hints",
        b"HTTP/1.1 101 Switching",
        b"HTTP/1.1 999",
        b"HTTP/2 200",
        b"ICY 200 OK",
    ),
    *(
        b"HTTP/1.1 20",
        b"HTTP/1.1 2000 x",
        b"HTTP/1.1",
        b"",
        b"HTTP/9.9 200 OK",
        b"HTTP/1.1 \xff\x00 x",
        b"http/1.1 200 ok",
        b"HTTP/1.1  200  OK",
    ),
]
FIELDS = [
    *(
        b"Content-Length: 5",
        b"Content-Length: 0",
        b"Content-Length: 99",
        b"Content-Length: -1",
        b"Content-Length: +5",
        b"Content-Length: 5, 5",
    ),
    *(
        b"Content-Length: 5, 6",
        b"Content-Length: 99999999999999999999",
        b"Content-Length:",
        b"Content-Length: 0x5",
        b"Content-Length : 5",
    ),
    *(
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, gzip",
        b"Transfer-Encoding: identity",
    ),
    *(
        b"Transfer-Encoding: \x0bchunked",
        b"Content-Encoding: gzip",
        b"Content-Encoding: br, gzip",
        b"Content-Encoding: x",
        b"Location: /x",
    ),
    *(
        b"Location: \xff\xfe",
        b"Location:",
        b"Retry-After: 9",
        b"Connection: close",
        b"Connection: keep-alive",
        b"Connection: upgrade",
    ),
    *(
        b"Upgrade: h2c",
        b"Set-Cookie: a=b",
        b"X: \x00",
        b" folded",
        b"no colon",
        b": no name",
        b"X" * 300,
        b"X: \xe9",
        b'ETag: "\xff"',
        b"Content-Type: text/html",
    ),
]
BODIES = [
    *(
        b"",
        b"right",
        b"hello",
        b"x" * 200,
        gzip.compress(b"hello"),
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"5;a=b\r\nhello\r\n0\r\nT: x\r\n\r\n",
    ),
    *(
        b"-1\r\nx\r\n",
        b"ffffffffffffffffff\r\n",
        b"5\nhello\n0\n\n",
        b"zz\r\n",
        b"0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        FORGED,
        b"hello" + FORGED,
    ),
    *(
        b"0\r\n\r\n" + FORGED,
        b"5\r\nhello\r\n0\r\n\r\n" + FORGED,
        b"\r\n\r\n",
        b"\x00" * 20,
        b"\x16\x03\x01\x02\x00\x01",
    ),
]


@dataclasses.dataclass(frozen=True)
class Odd:
    """What the origin says to one request, in which pieces, and what it does then."""

    pieces: tuple[bytes, ...]
    end: str


@st.composite
def odd_answers(draw):
    lines = [draw(st.sampled_from(STATUS)), *draw(st.lists(st.sampled_from(FIELDS), max_size=4))]
    line_end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\r\n"]))
    said = line_end.join(lines) + line_end * draw(st.sampled_from([2, 2, 2, 1])) + draw(st.sampled_from(BODIES))
    if draw(st.booleans()):
        said = (
            draw(st.sampled_from([b"HTTP/1.1 100 x\r\n\r\n", b"\r\n", b"HTTP/1.1 103 x\r\nLink: y\r\n\r\n", b"\x00"]))
            + said
        )
    at = sorted({0, len(said), *(point % (len(said) + 1) for point in draw(st.lists(st.integers(0, 999), max_size=3)))})
    end = draw(st.sampled_from(["close", "close", "close", "reset", "stay"]))
    return Odd(tuple(said[one:other] for one, other in itertools.pairwise(at)), end)


async def met(answers: list[Odd]) -> list[tuple[fetch.Answer, fetch.Answer, float]]:
    """(first answer, that of the request after it on the same host, seconds) for each; the origin's log is checked."""

    async def script(visitor: origins.Visitor) -> None:
        _, path, _ = origin.requests[visitor.number - 1].split(b" ", 2)
        kind, number = path.decode().lstrip("/").split("-")
        if kind == "next":
            await visitor.send(RIGHT)
            return
        odd = answers[int(number)]
        for piece in odd.pieces:
            await visitor.send(piece)
            await asyncio.sleep(0.001)
        if odd.end == "reset":
            visitor.writer.transport.abort()
        elif odd.end == "close":
            visitor.writer.close()

    limits = {"first_byte_s": TOTAL_S / 2, "total_s": TOTAL_S, "body_bytes_max": 150}
    async with origins.Origin(script) as origin, origins.fetcher(origin.port, **limits) as fetches:

        async def ask(number: int) -> tuple[fetch.Answer, fetch.Answer, float]:
            host = f"http://h{number}.example.com"
            began_s = time.monotonic()
            first = await fetches.fetch(f"{host}/odd-{number}", permit=origins.Gate().permit(f"h{number}"))
            spent_s = time.monotonic() - began_s
            return (
                first,
                await fetches.fetch(f"{host}/next-{number}", permit=origins.Gate().permit(f"h{number}")),
                spent_s,
            )

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(number)) for number in range(len(answers))]
        asked = Counter(head.split(b" ", 2)[1] for head in origin.requests)
    assert set(asked.values()) == {1}, "one request each"
    return [task.result() for task in tasks]


def check(answer: fetch.Answer, *, bytes_max: int = 150) -> None:
    assert answer.sent
    match answer.outcome:
        case records.Failed(reason=reason):
            assert reason in FAILURES
        case records.Fetched(body=body, truncated=truncated):
            assert truncated in CUTS
            assert len(body) <= bytes_max
        case records.NotModified() | records.Redirected():
            pass
        case other:
            raise AssertionError(f"the wire cannot give {other}")
    records.encode_json(answer.outcome)


@budget.tried(st.lists(odd_answers(), min_size=1, max_size=8), share=0.7)
def test_every_odd_answer_is_an_outcome_and_the_next_request_gets_its_own(answers):
    for odd, (first, second, spent_s) in zip(answers, asyncio.run(met(answers)), strict=True):
        check(first)
        assert spent_s < LATE_S, odd
        match second.outcome:
            case records.Fetched(status=200, body=b"right", truncated=None):
                pass
            case records.Failed(reason="disconnected" | "protocol"):
                pass  # a connection that was not what its answer promised costs a request, no wrong page
            case other:
                raise AssertionError(f"{other} after {odd}")


async def asked_for(wanted: list[str]) -> list[bytes]:
    """The targets that reach the origin when these URLs are fetched."""

    async def script(visitor: origins.Visitor) -> None:
        await visitor.send(RIGHT)

    async with origins.Origin(script) as origin, origins.fetcher(origin.port) as fetches:
        for url in wanted:
            answer = await fetches.fetch(url.replace("https://", "http://", 1), permit=origins.Gate().permit())
            assert isinstance(answer.outcome, records.Fetched), answer.outcome
        return [re.split(rb"[ ]", head)[1] for head in origin.requests]


@budget.tried(st.lists(test_urls.raw_urls, min_size=1, max_size=12), share=0.4)
def test_the_path_that_is_asked_for_is_the_canonical_one(raws):
    wanted = []
    for raw in raws:
        try:
            wanted.append(urls.canonical(raw))
        except errors.InvalidUrl:
            continue
    # Some ports are refused before anything is sent.
    wanted = [url for url in wanted if urls.origin_of(url).count(":") == 1]
    assert asyncio.run(asked_for(wanted)) == [urls.path_of(url).encode() for url in wanted]


def test_an_empty_query_is_asked_for_as_it_stands():
    wanted = ["http://example.com/?", "http://example.com/a?", "http://example.com/a??", "http://example.com/"]
    assert asyncio.run(asked_for(wanted)) == [b"/?", b"/a?", b"/a??", b"/"]


CUT_OFF = dict.fromkeys(
    ("flood-interim", "flood-fields", "flood-field", "flood-status", "flood-empty-lines"),
    "headers",
)
"""What ends before its time, because no answer begins like this."""


async def longest_stretch_s(name: str, port: int) -> tuple[fetch.Answer, float]:
    """The answer of one hostile origin, and the most CPU that the loop spent without letting anybody else run."""
    longest_s = 0.0

    async def tick() -> None:
        nonlocal longest_s
        spent_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            spent_s, before_s = time.thread_time(), spent_s
            longest_s = max(longest_s, spent_s - before_s)

    async with origins.fetcher(port, first_byte_s=0.5, total_s=1.0, body_bytes_max=BYTES_MAX) as fetches:
        ticking = asyncio.create_task(tick())
        answer = await fetches.fetch(f"http://{name}.example/row", permit=origins.Gate().permit(name))
        ticking.cancel()
    return answer, longest_s


@pytest.mark.parametrize("name", [name for name in raw_web.hostile() if "-at-" not in name])
def test_no_origin_holds_the_loop(name):
    web = raw_web.RawWeb()
    web.scripts[f"{name}.example", "/row"] = raw_web.hostile()[name]
    with raw_web.serving(web):
        answer, longest_s = asyncio.run(longest_stretch_s(name, web.port))
    check(answer, bytes_max=BYTES_MAX)
    assert getattr(answer.outcome, "reason", None) == CUT_OFF.get(name, getattr(answer.outcome, "reason", None))
    assert len(web.asked) == 1
    assert longest_s < STRETCH_S, f"{longest_s:.2f} s without a break; confirms wait so long"
