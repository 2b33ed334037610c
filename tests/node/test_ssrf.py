"""No URL that a page can hold makes a node send a packet to a private address, to another protocol, or to its own stores."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import nodes
from node import agent, dns, fetch, links
from shared import config, errors, records, urls
from tests import corpus
from tests.cluster import namespaces
from tests.node import name_server, origins
from tests.node.crawler import Web, crawling, full, moved, reply, robots_txt

METADATA = "169.254.169.254"
PUBLIC = "93.184.216.34"
LIMITS = config.Limits(connect_s=2.0, first_byte_s=0.3)
NAMES = {"metadata.google.internal": [METADATA]}


def behaviour(name: str) -> dict[str, str]:
    """One row of the corpus, so that a row it loses is noticed."""
    (found,) = [row for row in corpus.load("ssrf/ssrf_cases.json")["behaviours"] if row["id"] == name]
    return found


@contextlib.asynccontextmanager
async def fetcher(resolver: dns.Resolver) -> AsyncIterator[fetch.Fetcher]:
    made = fetch.Fetcher(user_agent=origins.AGENT, limits=LIMITS, resolver=resolver, idle_max=4)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def server() -> AsyncIterator[name_server.NameServer]:
    server = name_server.NameServer()
    server.address = await server.start()
    yield server
    server.stop()


class Staged(dns.Resolver):
    """example.com is the origin on loopback; all else is as it is for a node."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    async def lookup(self, host: str, port: int) -> dns.Address:
        return dns.Address("127.0.0.1", self._port) if host == "example.com" else await super().lookup(host, port)


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    web = Web()
    async with web.origin:
        yield web


@pytest.mark.netns
def test_every_row_sends_no_packet_and_the_count_would_have_seen_one() -> None:
    cases = corpus.load("ssrf/ssrf_cases.json")
    refused = [{"url": row["url"], "names": NAMES} for row in cases["must_refuse"]]
    allowed = [{"url": row["url"]} for row in cases["must_allow"]]
    named = [
        {"url": "http://pointed.test/", "names": {"pointed.test": [ip]}}
        for ip in ("127.0.0.1", "10.0.0.5", "192.168.7.7", METADATA, "100.64.1.1", "0.0.0.0")
    ]
    seen = [
        {"url": url, "allow_private": True, "names": NAMES}
        for url in ("http://127.0.0.1/", "http://10.5.5.5/", "http://[::1]/", "http://metadata.google.internal/")
    ]
    mixed = [{"url": "http://mixed.test/", "names": {"mixed.test": ["10.0.0.1", PUBLIC]}}] * 3
    told = watched([*refused, *named, *allowed, *mixed, *seen])

    for row in take(told, len(refused) + len(named)):
        assert (row["private"], row["other"]) == (0, 0), row
        for kind, reason, sent in row["outcomes"]:
            assert not sent, row
            assert (kind, reason) in {("Refused", "private_address"), ("Refused", "url"), ("Failed", "dns")}, row
    for row in take(told, len(allowed) + len(mixed)):
        assert row["private"] == 0, row
        assert row["other"] > 0, row
    for row in take(told, len(seen)):
        assert row["private"] > 0, f"the count is blind: {row}"


def watched(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Fetch the rows in a machine of their own, which counts what it sends."""
    with namespaces.machines(1) as (machine,):
        line = [*machine.prefix, sys.executable, "-m", "tests.node.packets", machine.gate, machine.link]
        done = subprocess.run(
            line, input=json.dumps(rows), env=nodes.packages(), capture_output=True, text=True, check=False, timeout=120
        )
    assert done.returncode == 0, done.stderr
    told = [json.loads(one) for one in done.stdout.splitlines()]
    assert [row["url"] for row in told] == [row["url"] for row in rows]
    return iter(told)


def take(told: Iterator[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    return [next(told) for _ in range(number)]


async def test_rebinding_connects_to_the_address_that_was_judged(
    server: name_server.NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look-up a connection: the name's next answer is judged for itself."""
    assert "one lookup per connection" in behaviour("rebinding")["expected"]
    connected: list[Any] = []

    def spy(_self: socket.socket, address: Any) -> None:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", spy)
    server.records["rebound.test"] = [PUBLIC]
    resolver = dns.Resolver(nameservers=[server.address])
    asked = resolver._ips

    async def ask_then_change(host: str) -> list[str]:
        found = list(await asked(host))
        server.records["rebound.test"] = [METADATA]
        resolver._known.clear()
        return found

    monkeypatch.setattr(resolver, "_ips", ask_then_change)
    async with fetcher(resolver) as fetches:
        first = await fetches.fetch("http://rebound.test/", permit=origins.Gate().permit())
        assert (first.outcome.reason, connected) == ("connect", [(PUBLIC, 80)])
        # c-ares may hold the old answer for its time; a resolver of its own has the new one.
    fresh = dns.Resolver(nameservers=[server.address])
    async with fetcher(fresh) as fetches:
        second = await fetches.fetch("http://rebound.test/", permit=origins.Gate().permit())
    assert second.outcome == records.Refused(reason="private_address")
    assert connected == [(PUBLIC, 80)]


async def test_a_redirect_to_a_private_address_is_recorded_and_not_followed(
    valkey: str, tmp_path: Path, web: Web
) -> None:
    metadata = behaviour("redirect-to-private")["input"].partition("Location: ")[2].strip()
    with listening() as (port, accepted):
        local = f"http://127.0.0.1:{port}/"
        web.put("/a", moved(metadata))
        web.put("/b", moved(local))
        async with crawling(valkey, web, tmp_path, resolver=Staged(web.origin.port)) as crawl:
            await crawl.seed("/a", "/b")
            await crawl.run()
            assert [line.outcome for line in crawl.lines() if line.visit != "robots"] == ["redirected", "redirected"]
            for host in (METADATA, "127.0.0.1"):
                assert (await crawl.look(host))["set_aside"] == {"private_address": 1}
        assert set(web.urls) == {full("/robots.txt"), full("/a"), full("/b")}
        assert accepted() == 0


@pytest.mark.parametrize("name", ["robots-redirect-to-private", "sitemap-to-private"])
async def test_robots_txt_leads_to_no_private_address(valkey: str, tmp_path: Path, web: Web, name: str) -> None:
    assert behaviour(name)
    with listening() as (port, accepted):
        target = f"http://127.0.0.1:{port}/"
        if name == "sitemap-to-private":
            web.put("/robots.txt", robots_txt("User-agent: *", "Allow: /", f"Sitemap: {target}sitemap.xml"))
        else:
            web.put("/robots.txt", moved(target))
        web.put("/a", reply(b"ok"))
        async with crawling(valkey, web, tmp_path, resolver=Staged(web.origin.port)) as crawl:
            await crawl.seed("/a")
            await crawl.run(lambda: bool(web.asked("/a")) or (name == "robots-redirect-to-private" and bool(web.urls)))
        # A robots.txt that cannot be had disallows (RFC 9309); a sitemap is nothing that is asked for.
        assert set(web.urls) == {full("/robots.txt"), *([full("/a")] if name == "sitemap-to-private" else [])}
        assert accepted() == 0


async def test_a_connection_that_waits_in_the_pool_is_no_way_round_the_judgement() -> None:
    assert "must not skip the check" in behaviour("keepalive-pool")["expected"]
    async with origins.Origin(origins.answering(origins.OK)) as origin:
        resolver = dns.Resolver(allow_private=True)
        async with fetcher(resolver) as fetches:
            url = f"http://127.0.0.1:{origin.port}/"
            for _ in range(2):
                answer = await fetches.fetch(url, permit=origins.Gate().permit())
                assert isinstance(answer.outcome, records.Fetched)
            assert (origin.connections, len(origin.requests)) == (1, 2)
            resolver._allow_private = False
            answer = await fetches.fetch(url, permit=origins.Gate().permit())
            assert answer.outcome == records.Refused(reason="private_address")
        assert len(origin.requests) == 2


@pytest.mark.parametrize("port", [22, 25, 110, 6667, 10080])
async def test_a_port_of_another_protocol_is_refused(port: int) -> None:
    assert "bad-port list" in behaviour("port")["expected"]
    async with fetcher(dns.Resolver(allow_private=True)) as fetches:
        answer = await fetches.fetch(f"http://200.1.1.1:{port}/", permit=origins.Gate().permit())
    assert answer.outcome == records.Refused(reason="port")


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL", "dict://127.0.0.1:11211/stat", "ftp://h/x"]
)
async def test_only_http_and_https_are_followed(url: str) -> None:
    assert url.partition("://")[0] in behaviour("scheme")["input"]
    with pytest.raises(errors.InvalidUrl):
        urls.canonical(url)
    body = f'<a href="{url}">x</a><a href="/y">y</a>'.encode()
    page = links.extract(body, content_type="text/html", url="http://example.com/", links_max=9)
    assert list(page.links) == ["http://example.com/y"]
    async with fetcher(dns.Resolver(allow_private=True)) as fetches:
        answer = await fetches.fetch(url, permit=origins.Gate().permit())
    assert answer.outcome == records.Refused(reason="url")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.8.9.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "store.test", "{own}"],
)
async def test_the_clusters_own_stores_are_refused_even_where_private_addresses_are_not(
    host: str, server: name_server.NameServer
) -> None:
    """A page's link may not reach the store of the node that follows it; a store knows no Host header."""
    server.records["store.test"] = ["127.0.0.1"]
    with listening() as (port, accepted):
        url = f"http://{host.format(own=_own_address())}:{port}/"
        for stores, expected in ((), "Failed"), ([("127.0.0.1", port)], "Refused"), ([("localhost", port)], "Refused"):
            resolver = dns.Resolver(allow_private=True, nameservers=[server.address], stores=lambda known=stores: known)
            before = accepted()
            async with fetcher(resolver) as fetches:
                answer = await fetches.fetch(url, permit=origins.Gate().permit())
            assert type(answer.outcome).__name__ == expected, (stores, answer.outcome)
            if stores:
                assert answer.outcome == records.Refused(reason="store")
                assert accepted() == before


@pytest.mark.parametrize(
    ("redis", "stores"),
    [
        ("redis://:secret@h:7/0", {("h", 7)}),
        ("redis://localhost", {("localhost", 6379)}),
        ("rediss-cluster://u:p@a:1,[::1]:2", {("a", 1), ("::1", 2)}),
        ("unix:///run/redis.sock", set()),
    ],
)
def test_a_node_knows_its_stores_from_its_configuration(redis: str, stores: set[tuple[str, int]]) -> None:
    settings = config.Config(etcd="https://e1:2379,https://[::1]:2380", redis=redis)
    resolver = agent.Agent(settings)._fetcher()._resolver
    assert set(resolver._stores()) == {("e1", 2379), ("::1", 2380)} | stores


async def test_connect_to_is_no_way_to_a_store_and_other_ports_are_no_stores() -> None:
    with listening() as (port, accepted):
        there = f"127.0.0.1:{port}"
        async with fetcher(dns.Resolver(connect_to=there, stores=lambda: [("localhost", port)])) as fetches:
            answer = await fetches.fetch("http://example.com/", permit=origins.Gate().permit())
        assert answer.outcome == records.Refused(reason="store")
        assert accepted() == 0
        async with origins.Origin(origins.answering(origins.OK)) as origin:
            resolver = dns.Resolver(connect_to=f"127.0.0.1:{origin.port}", stores=lambda: [("127.0.0.1", port)])
            async with fetcher(resolver) as fetches:
                answer = await fetches.fetch("http://example.com/", permit=origins.Gate().permit())
            assert isinstance(answer.outcome, records.Fetched)


async def test_while_a_stores_name_has_no_address_its_port_is_left_alone(server: name_server.NameServer) -> None:
    resolver = dns.Resolver(nameservers=[server.address], stores=lambda: [("gone.test", 7000)])
    with pytest.raises(dns.UnresolvedError, match="store"):
        await resolver.lookup(PUBLIC, 7000)
    assert await resolver.lookup(PUBLIC, 7001) == dns.Address(PUBLIC, 7001)
    server.records["gone.test"] = ["93.184.216.35"]
    resolver._known.clear()
    assert await resolver.lookup(PUBLIC, 7000) == dns.Address(PUBLIC, 7000)
    with pytest.raises(dns.ForbiddenError, match="store"):
        await resolver.lookup("93.184.216.35", 7000)
    await resolver.close()


@contextlib.contextmanager
def listening() -> Iterator[tuple[int, Any]]:
    """A store's port on all addresses of this machine; how many connections reached it."""
    with socket.socket(socket.AF_INET6) as listener:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", 0))
        listener.listen(64)
        listener.setblocking(False)
        taken = 0

        def accepted() -> int:
            nonlocal taken
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    taken += 1
            return taken

        yield listener.getsockname()[1], accepted


def _own_address() -> str:
    """An address of this machine that is not loopback, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
