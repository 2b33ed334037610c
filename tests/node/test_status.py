"""The status endpoint says whether the node lives, whether it may work, and what it does."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest

from node import status
from shared import config, errors, metrics


class Node:
    """What the endpoint asks its node, changeable by a test."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.reason: str | None = "joining"
        self.state: dict[str, Any] = {"id": "n1", "sites": [{"site": f"s{number}.example"} for number in range(150)]}
        self.metrics = metrics.Metrics()
        self.server = status.StatusServer(
            "127.0.0.1:0",
            metrics=self.metrics,
            ready=lambda: self.reason,
            state=lambda: self.state,
            names=names,
        )
        self.base = ""

    async def get(self, path: str) -> tuple[int, str, Any]:
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self.base + path) as answer:
            body = await answer.text()
            return answer.status, answer.headers.get("Content-Type", ""), body


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    found = Node()
    host, port = await found.server.start()
    found.base = f"http://{host}:{port}"
    yield found
    await found.server.close()


async def test_ready_only_while_nothing_speaks_against_it_and_the_reason_is_said(node: Node) -> None:
    code, kind, body = await node.get("/readyz")
    assert (code, body) == (503, '{"ready": false, "reason": "joining"}\n')
    assert kind.startswith("application/json")
    node.reason = None
    assert (await node.get("/readyz"))[0] == 200
    node.reason = "redis does not answer"
    assert (await node.get("/readyz"))[0] == 503


async def test_alive_while_not_ready(node: Node) -> None:
    assert (await node.get("/healthz"))[0] == 200


async def test_metrics_are_what_prometheus_reads(node: Node) -> None:
    node.metrics.pages.inc(3)
    code, kind, body = await node.get("/metrics")
    assert code == 200
    assert kind.startswith("text/plain; version=")
    assert "crawlring_pages_total 3.0" in body


async def test_state_shows_at_most_a_hundred_sites_and_leaves_the_nodes_own_list_alone(node: Node) -> None:
    async with aiohttp.ClientSession() as session, session.get(node.base + "/state") as answer:
        found = await answer.json()
    assert found["id"] == "n1"
    assert len(found["sites"]) == 100
    assert len(node.state["sites"]) == 150


async def test_nothing_else_is_served(node: Node) -> None:
    assert (await node.get("/"))[0] == 404


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/state", "/", "/drain"])
async def test_no_method_but_reading_ones_is_taken(node: Node, path: str) -> None:
    async with aiohttp.ClientSession() as session:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PURGE"):
            async with session.request(method, node.base + path, data=b"{}") as answer:
                assert answer.status == 405, method
        async with session.head(node.base + path) as answer:
            assert answer.status in {200, 404, 503}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("[::1]:{port}", 200),
        ("192.0.2.7", 200),
        ("localhost", 200),
        ("LOCALHOST.:{port}", 200),
        ("node.localhost:{port}", 200),
        ("n1.crawl.example:9100", 200),
        ("rebound.example:{port}", 421),
        ("localhost.rebound.example", 421),
        ("127.0.0.1.rebound.example:{port}", 421),
        ("n1.crawl.example.rebound.example", 421),
        ("", 421),
    ],
)
async def test_a_name_that_was_made_to_point_here_reads_nothing(host: str, status: int) -> None:
    found = Node(names=("n1.crawl.example",))
    _, port = await found.server.start()
    for path in ("/state", "/metrics", "/healthz"):
        head = f"GET {path} HTTP/1.1\r\nHost: {host.format(port=port)}\r\nConnection: close\r\n\r\n"
        answer = await _exchange(port, head)
        assert answer.split()[1] == str(status).encode(), answer
        assert (b"s0.example" in answer) == (status == 200 and path == "/state")
    await found.server.close()


async def test_two_hosts_are_none_and_no_browser_sends_no_host(node: Node) -> None:
    port = int(node.base.rpartition(":")[2])
    two = await _exchange(port, "GET /state HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n\r\n")
    assert two.split()[1] in {b"400", b"421"}
    assert (await _exchange(port, "GET /state HTTP/1.0\r\n\r\n")).split()[1] == b"200"


async def test_any_name_where_the_operator_says_so() -> None:
    found = Node(names=("*",))
    _, port = await found.server.start()
    head = "GET /healthz HTTP/1.1\r\nHost: anything.example\r\nConnection: close\r\n\r\n"
    assert (await _exchange(port, head)).split()[1] == b"200"
    await found.server.close()


def test_it_is_on_loopback_unless_told_otherwise() -> None:
    assert status.address_of(config.Config().node.listen) == ("127.0.0.1", 0)
    assert status.address_of(":9") == ("127.0.0.1", 9)


async def test_a_taken_port_is_a_configuration_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = status.StatusServer(address, metrics=metrics.Metrics(), ready=lambda: None, state=dict)
        with pytest.raises(errors.ConfigError, match="cannot listen on"):
            await server.start()


async def test_an_idle_keep_alive_connection_does_not_hold_up_closing(node: Node) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(node.base + "/healthz") as answer:
            assert answer.status == 200
        async with asyncio.timeout(5):
            await node.server.close()
            await node.server.close()


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:0", ("::1", 0)),
        (":9", ("127.0.0.1", 9)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_an_address_is_host_and_port(listen: str, address: tuple[str, int]) -> None:
    assert status.address_of(listen) == address


@pytest.mark.parametrize("listen", ["", "localhost", "h:", "h:x", "h:-1", "h:65536", "h:²"])
def test_what_is_no_address_is_a_configuration_error(listen: str) -> None:
    with pytest.raises(errors.ConfigError, match="not HOST:PORT"):
        status.address_of(listen)


async def _exchange(port: int, request: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    async with asyncio.timeout(5):
        answer = await reader.read(64 * 1024)
    writer.close()
    return answer
