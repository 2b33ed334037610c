"""Field cases of HTTP answers: one request each, an outcome of the closed list, and the rest of the crawl goes on."""

import gzip
import hashlib
import re

import pytest

from node import decode
from node.sinks import pages
from shared import clock
from tests.field.stage import OK, Memory, Scene, archived, case, linking, outcomes, reply, sending

PAGE = b"<title>kept</title><a href='/linked'>x</a>" + b"<p>some text of the page" * 40
PROTOCOL = {"failed:protocol", "failed:headers"}


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1")


def digest(body: bytes) -> str:
    """Of a payload, as the sink has it: it tells which bytes were kept, not only how many."""
    return pages.labelled(hashlib.sha1(body, usedforsecurity=False).digest())


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [
        (b"", "failed:disconnected"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n", "failed:disconnected"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "failed:disconnected"),
    ],
    ids=["nothing", "half", "continue"],
)
@case("client-hidden-retry")
async def test_a_connection_that_closes_early_is_one_request(scene: Scene, sent: bytes, outcome: str) -> None:
    seen = await scene.one(sending(sent))
    assert seen.outcome == outcome
    assert len(scene.stage.asked("/p")) == 1
    assert len(scene.stage.origin.requests) == len({one.url for one in scene.stage.log}) == 5


@case("keepalive-lie")
async def test_a_connection_kept_by_word_only_costs_no_page(scene: Scene) -> None:
    lie = sending(head("Connection: keep-alive", "Content-Length: 2", "Content-Type: text/html") + b"ok")
    pages = ["/1", "/2", "/3"]
    for page in ("/robots.txt", *pages):
        scene.put(page, lie)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, *pages)
        await crawl.run()
        look = await crawl.look(scene.site)
        assert [outcomes(crawl, scene.url(page)) for page in pages] == [["fetched"]] * 3
    assert scene.stage.paths == pages
    assert scene.stage.origin.connections == 4
    assert (look["backoff"], look["due_term"]) == (0, "minimum")


@case("body-longer-than-cl")
async def test_a_body_longer_than_it_says_is_as_long_as_it_says(scene: Scene) -> None:
    seen = await scene.one(head("Content-Length: 3", "Content-Type: text/html") + b"more than three")
    assert seen.outcome == "fetched"
    assert seen.page is not None
    assert (seen.page.bytes, seen.page.truncated, seen.page.payload) == (3, None, digest(b"mor"))
    assert scene.stage.origin.connections >= 2, "the connection is not used again"


@case("cl-received-all-but-error")
async def test_a_large_body_that_came_whole_is_whole(scene: Scene) -> None:
    size = 19_292_859
    scene.stage.delay_s = 0.0
    sent = sending(head(f"Content-Length: {size}", "Content-Type: application/octet-stream") + b"x" * size)
    seen = await scene.one(sent, limits={"body_bytes_max": 20 * 1024 * 1024}, within_s=20.0)
    assert seen.outcome == "fetched"
    assert seen.page is not None
    assert (seen.page.bytes, seen.page.truncated) == (size, None)


@pytest.mark.parametrize("value", ["-5", "4x", "4, 9"])
@case("cl-negative-or-garbage")
async def test_a_content_length_that_is_none_is_a_protocol_error(scene: Scene, value: str) -> None:
    seen = await scene.one(sending(head(f"Content-Length: {value}", "Content-Type: text/html") + b"body"))
    assert seen.outcome == "failed:protocol"
    assert seen.look["later"] == 1, "tried again, and later"


@case("cl-two-values")
async def test_two_content_lengths_that_differ_are_a_protocol_error(scene: Scene) -> None:
    seen = await scene.one(sending(head("Content-Length: 4", "Content-Length: 9") + b"body"))
    assert seen.outcome == "failed:protocol"


@case("chunk-premature-close")
async def test_a_chunked_body_cut_short_is_kept_as_far_as_it_came(scene: Scene) -> None:
    seen = await scene.one(sending(head("Transfer-Encoding: chunked", "Content-Type: text/html") + b"5\r\nhello\r\n"))
    assert seen.outcome == "fetched"
    assert seen.page is not None
    assert (seen.page.bytes, seen.page.truncated, seen.page.payload) == (5, "connection", digest(b"hello"))


@case("te-unsolicited-gzip")
async def test_a_gzip_transfer_coding_is_undone(scene: Scene) -> None:
    body = gzip.compress(PAGE)
    sent = head("Transfer-Encoding: gzip, chunked", "Content-Type: text/html") + chunked(body[:20], body[20:])
    seen = await scene.one(sent)
    assert seen.page is not None
    assert (seen.page.bytes, seen.page.title, seen.page.truncated) == (len(PAGE), "kept", None)
    assert "gzip" not in " ".join(one.header("te") or "" for one in scene.stage.log)


@case("gzip-truncated")
async def test_what_a_cut_gzip_body_holds_is_kept_and_marked(scene: Scene) -> None:
    body = gzip.compress(PAGE)[:-10]
    seen = await scene.one(
        head(f"Content-Length: {len(body)}", "Content-Encoding: gzip", "Content-Type: text/html") + body
    )
    assert seen.outcome == "fetched"
    assert seen.page is not None
    assert seen.page.truncated == "encoding"
    assert seen.page.title == "kept"
    assert 0 < seen.page.bytes <= len(PAGE)


@case("gzip-not-gzip")
async def test_a_body_that_only_says_gzip_is_used_as_it_is(scene: Scene) -> None:
    body = b"<title>plain</title>plain"
    sent = head(f"Content-Length: {len(body)}", "Content-Encoding: gzip", "Content-Type: text/html") + body
    seen = await scene.one(sent, archive={"warc": True})
    assert seen.outcome == "fetched"
    assert seen.page is not None
    assert (seen.page.bytes, seen.page.title) == (len(body), "plain")
    assert seen.page.decoding == "mislabelled", "a warning"
    held = archived(scene.out)
    assert sent in held, "as it came, head and body"
    assert b"\r\ndecoding: mislabelled\r\n" in held


@case("gzip-twice")
async def test_codings_are_undone_one_after_another_within_one_limit(scene: Scene) -> None:
    twice = gzip.compress(gzip.compress(PAGE))
    sent = head(f"Content-Length: {len(twice)}", "Content-Encoding: gzip, gzip", "Content-Type: text/html") + twice
    seen = await scene.one(sent)
    assert seen.page is not None
    assert (seen.page.bytes, seen.page.title, seen.page.truncated) == (len(PAGE), "kept", None)
    many = PAGE
    for _ in range(12):
        many = gzip.compress(many)
    body = decode.Body(["gzip"] * 12, bytes_max=10_000)
    body.feed(many)
    body.finish()
    assert body.fault == "encoding", "not any number of layers"
    bomb = decode.Body(["gzip", "gzip"], bytes_max=10_000)
    bomb.feed(gzip.compress(gzip.compress(bytes(50_000_000), 1), 1))
    assert (bomb.fault, len(bomb.data)) == ("size", 10_000)


@pytest.mark.parametrize("first", ["type", "size", "time"])
@case("endless-stream")
async def test_a_stream_without_an_end_is_stopped_by_the_first_limit_it_meets(scene: Scene, first: str) -> None:
    sent = sending(head("Content-Type: audio/mpeg"), b"\xff\xfb" * 2_000, pause_s=0.01, forever=True)
    options = {
        "type": {"scope": {"content_types": ("text/html",)}},
        "size": {"limits": {"body_bytes_max": 50_000}},
        "time": {"limits": {"total_s": 0.6}},
    }[first]
    began_s = clock.boot_s()
    seen = await scene.one(sent, **options)
    assert clock.boot_s() - began_s < 4.0
    assert seen.outcome == "fetched"
    assert seen.page is not None
    assert seen.page.truncated == first
    assert seen.page.bytes <= {"type": 0, "size": 50_000, "time": 1_000_000}[first]
    assert scene.stage.origin.resets >= 1, "the origin saw the end of it"


@case("slow-drip")
async def test_a_body_that_drips_ends_at_the_total_limit(scene: Scene) -> None:
    sent = sending(head("Content-Length: 1000000", "Content-Type: text/html"), b"x", pause_s=0.05, forever=True)
    seen = await scene.one(sent, limits={"total_s": 0.6, "first_byte_s": 0.3})
    assert seen.outcome == "fetched"
    assert seen.page is not None
    assert seen.page.truncated == "time"
    assert 3 <= seen.page.bytes <= 14
    assert 500 <= seen.line.ms <= 1_500
    assert seen.commit.backoff == 1, "the site's error counter"


@case("slow-headers")
async def test_headers_that_drip_end_at_the_limit_of_all_of_them(scene: Scene) -> None:
    sent = sending(b"HTTP/1.1 200 OK\r\n", b"X-A: 1\r\n", pause_s=0.05, forever=True)
    seen = await scene.one(sent, limits={"first_byte_s": 0.3, "total_s": 4.0})
    assert seen.outcome == "failed:timeout"
    assert seen.line.ms < 3_000, "counted from the request, not from the line before"


@case("header-endless")
async def test_headers_without_an_end_are_a_protocol_error_and_cost_no_memory(scene: Scene) -> None:
    lines = b"".join(b"X-%d: y\r\n" % number for number in range(20_000))
    memory = Memory()
    seen = await scene.one(sending(b"HTTP/1.1 200 OK\r\n", lines, forever=True))
    assert seen.outcome in PROTOCOL
    assert memory.grown_kib() < 20 * 1024
    assert seen.line.ms < 3_000


@case("header-8bit-and-control")
async def test_odd_header_bytes_are_kept_and_nul_and_bare_cr_refused(scene: Scene) -> None:
    sent = b"HTTP/1.1 200 OK\r\nX: a\x01b\r\nY: caf\xe9\r\nContent-Length: 2\r\nContent-Type: text/html\r\n\r\nok"
    seen = await scene.one(sent, archive={"warc": True})
    assert seen.outcome == "fetched"
    assert b"\r\nX: a\x01b\r\nY: caf\xe9\r\n" in archived(scene.out)
    for number, bad in enumerate((b"X: a\x00b\r\n", b"Pragma: no-cache\r\r\n")):
        path = f"/bad{number}"
        scene.put(path, sending(b"HTTP/1.1 200 OK\r\n" + bad + b"Content-Length: 2\r\n\r\nok"))
        async with scene.crawl(node=f"n{number + 2}", epoch=20 + number, politeness={"backoff_min_s": 30.0}) as crawl:
            await scene.seed(crawl, path)
            await crawl.run(lambda path=path, crawl=crawl: bool(outcomes(crawl, scene.url(path))))  # type: ignore[misc]
            assert outcomes(crawl, scene.url(path)) == ["failed:protocol"]
        assert len(scene.stage.asked(path)) == 1


@case("http-1.0")
async def test_an_answer_of_http_1_0_is_read_to_its_end(scene: Scene) -> None:
    body = b"<html><title>old</title>old</html>"
    seen = await scene.one(sending(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + body))
    assert seen.outcome == "fetched"
    assert seen.page is not None
    assert (seen.page.bytes, seen.page.title, seen.page.truncated) == (len(body), "old", None)


@case("status-odd")
async def test_999_is_a_refusal_and_a_status_of_four_digits_an_error(scene: Scene) -> None:
    scene.put("/a", reply(status="999 Request denied"), OK)
    scene.put("/b", OK)
    async with scene.crawl(politeness={"backoff_min_s": 0.4}) as crawl:
        await scene.seed(crawl, "/a", priority=9)
        await crawl.run(lambda: bool(outcomes(crawl, scene.url("/a"))))
        look = await crawl.look(scene.site)
        assert (look["backoff"], look["due_term"]) == (1, "backoff")
        await scene.seed(crawl, "/b")
        await crawl.run()
    asked = [one for one in scene.stage.log if one.line != "/robots.txt"]
    assert asked[1].start_s - asked[0].end_s >= 0.4
    strange = f"http://strange-{scene.site}/p"
    seen = await scene.one(
        sending(b"HTTP/1.1 1000 Strange\r\nContent-Length: 0\r\n\r\n"), path=strange, epoch=20, node="n2"
    )
    assert seen.outcome == "failed:protocol"


@case("cookie-flood")
async def test_cookies_are_not_kept(scene: Scene) -> None:
    cookies = b"Set-Cookie: \xe9=\xff; path=/\r\nSet-Cookie: a{b}=c\r\n"
    cookies += b"".join(b"Set-Cookie: n%d=%s\r\n" % (number, b"v" * 60) for number in range(498))
    seen = await scene.one(b"HTTP/1.1 200 OK\r\n" + cookies + b"Content-Length: 2\r\nContent-Type: text/html\r\n\r\nok")
    assert seen.outcome == "fetched"
    assert {one.line for one in scene.stage.log} >= {"/p", "/after", "/fine"}
    assert all(one.header("cookie") is None for one in scene.stage.log)


@case("304-with-body")
async def test_a_304_with_a_body_is_a_304(scene: Scene) -> None:
    first = reply(b"body", etag='"x"')
    lying = b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 4\r\n\r\nbody'
    scene.put("/p", first, lying)
    scene.put("/after", linking("/p"))
    async with scene.crawl() as crawl:
        known = await scene.visits(crawl, "/p", 2)
        connections = scene.stage.origin.connections
        await scene.seed(crawl, "/after")
        await crawl.run()
        assert outcomes(crawl, scene.url("/p")) == ["fetched", "not_modified"]
        assert outcomes(crawl, scene.url("/after")) == ["fetched"]
    assert (known[1].checks, known[1].changes) == (1, 0)
    assert scene.stage.origin.connections == connections + 1, "its connection is not used again"
    assert re.fullmatch(r'"x"', scene.stage.asked("/p")[1].header("if-none-match") or "")
