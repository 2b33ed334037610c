"""What a visit after another costs a site and us: its connection stays, and quick looks are right."""

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from node import connections, dns, fetch, robots, wire
from shared import records
from tests.node import origins
from tests.node.origins import Gate, Origin, answering, fetcher, until

PAGES = 20


async def pages(fetches: fetch.Fetcher, base: str, site: str = origins.SITE) -> None:
    for page in range(PAGES):
        answer = await fetches.fetch(f"{base}/{page}", permit=Gate().permit(site))
        assert isinstance(answer.outcome, records.Fetched), answer.outcome


async def test_a_site_is_crawled_over_one_connection() -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        await pages(fetches, "http://example.com")
        assert (origin.connections, len(origin.requests)) == (1, PAGES)


async def test_a_site_is_crawled_over_one_tls_handshake(tmp_path: Path) -> None:
    server, client = origins.certificate(tmp_path)
    handshakes = []
    server.sni_callback = lambda *_: handshakes.append(1)  # type: ignore[func-returns-value]
    async with Origin(answering(origins.OK), tls=server) as origin, fetcher(origin.port, tls=client) as fetches:
        await pages(fetches, "https://example.com")
        assert (len(handshakes), len(origin.requests)) == (1, PAGES)


async def test_sites_in_turn_keep_their_connections() -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port, idle_max=12) as fetches:
        for _ in range(3):
            for host in range(12):
                site = f"h{host}.example.com"
                await fetches.fetch(f"http://{site}/", permit=Gate().permit(site))
        assert (origin.connections, len(origin.requests)) == (12, 36)


async def test_two_fetches_of_an_origin_at_once_leave_one_connection_idle() -> None:
    both = asyncio.Event()

    async def script(visitor: origins.Visitor) -> None:
        if visitor.number == 2:
            both.set()
        await both.wait()
        await visitor.send(origins.OK)

    async with Origin(script) as origin, fetcher(origin.port) as fetches:
        ask = (fetches.fetch(f"http://example.com/{page}", permit=Gate().permit()) for page in range(2))
        assert all(isinstance(answer.outcome, records.Fetched) for answer in await asyncio.gather(*ask))
        await until(lambda: origin.closed == 1)
        assert origin.connections == 2
        await fetches.fetch("http://example.com/", permit=Gate().permit())
        assert origin.connections == 2


async def test_an_idle_connection_to_another_address_than_was_judged_is_closed() -> None:
    place = wire.Place(secure=False, host="example.com", port=80)
    pool = connections.Connections(idle_max=2, tls=None)
    async with Origin(answering(origins.OK)) as first, Origin(answering(origins.OK)) as second:
        for origin in (first, second):
            exchange = wire.Exchange(Gate().permit())
            exchange.address = dns.Address("127.0.0.1", origin.port)
            pool.keep(await pool.open(exchange, place))
        await until(lambda: first.closed == 1)
        assert second.connections == 1
        await pool.close()


LINES = st.sampled_from(
    [
        b"Content-Length: 5",
        b"content-length: 5, 5",
        b"Content-Length:6",
        b"Content-Length : 5",
        b"Transfer-Encoding: chunked",
        b"X-Content-Length: 5",
        b"Server : a",
        b"A: b :c",
        b"A: b\t:c",
    ]
)


@given(st.lists(LINES, max_size=4), st.sampled_from([b"\r\n", b"\n"]))
def test_a_quick_look_at_a_head_sees_all_that_needs_a_closer_one(lines: list[bytes], end: bytes) -> None:
    head = end.join([b"HTTP/1.1 200 OK", *lines, b"", b""])
    if wire._is_plain(head):
        assert wire._closely(head) == (head, False)


@given(st.from_regex(r"\Ahttps?://[a-z?/#:]{0,4}[/a?#]{0,6}\Z"))
def test_the_path_of_a_usual_url_is_found_as_that_of_any_other(url: str) -> None:
    # A scheme in capitals takes the long way.
    assert robots.path_of(url) == robots.path_of(url.replace("http", "HTTP", 1))
