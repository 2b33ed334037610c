"""The small web as a server of its own, which logs every request the moment its head has arrived.

One process plays all hosts, told apart by the Host header, so nodes are sent to it by `--connect-to`. Its log
is the origins' own, by one clock: the gaps in it judge all nodes together. Start it with
`python -m coordinator.web_demo --port 0 --seed 7 --log FILE`.
"""

import argparse
import asyncio
import http
import json
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from typing import IO

from coordinator import local, nodes, small_web
from shared import clock

HTML = "text/html; charset=utf-8"
LOG = "requests.jsonl"
HEAD_BYTES_MAX = 64 * 1024
STAMP_S = 0.001  # between two readings of clocks that belong together
LAST_DATA_RECV = 52  # of struct tcp_info in linux/tcp.h: eight bytes, then the twelfth of its 32-bit numbers


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a GET."""

    host: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.path}"


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Origins:
    """All hosts of a web, with what changes while they serve: versions, visits, the log."""

    def __init__(self, graph: small_web.Web, log: IO[str]) -> None:
        self._log = log
        self._sites = {host: site for site in graph.sites for host in site.hosts}
        self._pages = {page.url: page for _, page in graph.pages()}
        self._visits: Counter[str] = Counter()
        self._started_s = clock.boot_s()
        self._started_ms = clock.wall_ms()

    def answer(self, request: Request, *, boot_s: float, late_ms: int) -> Response:
        """Answer and log; `boot_s` is when the head was read, `late_ms` how long it had waited for that."""
        wall_ms = clock.wall_ms()
        site = self._sites.get(request.host)
        response = self._respond(request, site) if site else Response(421, "no such host\n")
        line = {
            "boot_s": round(boot_s, 6),
            "late_ms": late_ms,
            "wall_ms": wall_ms,
            "site": site.name if site else None,
            "url": request.url,
            "status": response.status,
            "conditional": "if-none-match" in request.headers or "if-modified-since" in request.headers,
        }
        self._log.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._log.flush()
        return response

    def _respond(self, request: Request, site: small_web.Site) -> Response:
        self._visits[request.url] += 1
        if request.path == "/robots.txt":
            return self._robots(site, request.url)
        page = self._pages.get(request.url)
        if page is None:
            return Response(404, "nothing here\n")
        match page.kind:
            case small_web.Kind.GONE:
                return Response(404, "gone\n")
            case small_web.Kind.BROKEN:
                return Response(500, "broken\n")
            case small_web.Kind.MOVED:
                return Response(302, headers={"Location": page.links[0]})
            case small_web.Kind.PAGE | small_web.Kind.PRIVATE:
                return self._page(request, page)

    def _robots(self, site: small_web.Site, url: str) -> Response:
        if site.robots is small_web.Robots.ABSENT:
            return Response(404, "no rules\n")
        if site.robots is small_web.Robots.LATE and self._visits[url] == 1:
            return Response(503, "not yet\n")
        return Response(200, small_web.robots_text(site), {"Content-Type": "text/plain; charset=utf-8"})

    def _page(self, request: Request, page: small_web.Page) -> Response:
        version = self._version(page)
        headers = self._validators(page, version)
        if _unchanged(request, headers):
            return Response(304, headers=headers)
        return Response(200, small_web.body(page, version), {"Content-Type": HTML, **headers})

    def _version(self, page: small_web.Page) -> int:
        match page.period_s:
            case None:
                return 0
            case 0.0:
                return self._visits[page.url]
            case period_s:
                return int((clock.boot_s() - self._started_s) / period_s)

    def _validators(self, page: small_web.Page, version: int) -> dict[str, str]:
        headers = {}
        if page.validator in {small_web.Validator.ETAG, small_web.Validator.BOTH}:
            headers["ETag"] = small_web.etag(page, version)
        elif page.validator is small_web.Validator.FICKLE:
            headers["ETag"] = small_web.etag(page, self._visits[page.url])
        if page.validator in {small_web.Validator.DATE, small_web.Validator.BOTH} and page.period_s != 0:
            changed_s = self._started_ms / 1000 + version * (page.period_s or 0)
            headers["Last-Modified"] = formatdate(changed_s, usegmt=True)
        return headers


class Connection(asyncio.Protocol):
    """HTTP/1.1 for a GET at a time, by hand: the stamp must be the first thing that is done."""

    def __init__(self, origins: Origins, connections: set[asyncio.Transport]) -> None:
        self._origins = origins
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(transport)

    def connection_lost(self, _error: Exception | None) -> None:
        assert self._transport
        self._connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport
        boot_s, late_ms = stamp(self._transport)
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0 and not self._transport.is_closing():
            head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
            request = _parse(head)
            if request is None:
                self._transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                self._transport.close()
                return
            self._transport.write(_encode(self._origins.answer(request, boot_s=boot_s, late_ms=late_ms)))
        if len(self._buffer) > HEAD_BYTES_MAX:
            self._transport.abort()


class Serving:
    """A listening web; `close` ends it and its connections."""

    def __init__(self, server: asyncio.Server, connections: set[asyncio.Transport]) -> None:
        self._server = server
        self._connections = connections
        self.port = int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        self._server.close()
        for transport in list(self._connections):
            transport.abort()


async def serve(graph: small_web.Web, log: IO[str], *, port: int = 0) -> Serving:
    """Listen on loopback."""
    origins, connections = Origins(graph, log), set[asyncio.Transport]()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(origins, connections), local.LOOPBACK, port, backlog=512)
    return Serving(server, connections)


def _parse(head: bytes) -> Request | None:
    """A request head without its empty line; None for what is no plain GET."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    path, _, version = rest.partition(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if method != "GET" or not path.startswith("/") or version != "HTTP/1.1" or "content-length" in headers:
        return None
    return Request(headers.get("host", "").partition(":")[0], path, headers)


def _encode(response: Response) -> bytes:
    body = response.text.encode()
    length = {} if response.status == 304 else {"Content-Length": str(len(body))}
    fields = {"Date": formatdate(usegmt=True), **response.headers, **length}
    phrase = http.HTTPStatus(response.status).phrase
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {response.status} {phrase}\r\n{head}\r\n".encode("latin-1") + body


def stamp(transport: asyncio.Transport) -> tuple[float, int]:
    """Now, in boot seconds, and for how many milliseconds the kernel has had the data."""
    return _together(lambda: _late_ms(transport), clock.boot_s)


def _together(late_ms: Callable[[], int], now_s: Callable[[], float]) -> tuple[float, int]:
    """Both as of one moment: a process that is put aside between them would count that time twice."""
    before_s = now_s()
    while True:
        late = late_ms()
        after_s = now_s()
        if after_s - before_s <= STAMP_S:
            return before_s, late
        before_s = after_s


def _late_ms(transport: asyncio.Transport) -> int:
    """Milliseconds since the kernel got the data, to a tick of its clock (4 ms as a rule): tcpi_last_data_recv."""
    info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
    return int(struct.unpack_from("=I", info, LAST_DATA_RECV)[0])


def process(folder: Path, *, seed: int, sites: int, largest: int) -> local.Server:
    """The same in a process of its own, not started; its log is requests.jsonl in the folder."""

    def command(port: int, _peer_port: int) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "coordinator.web_demo"),
            *("--port", str(port), "--seed", str(seed), "--sites", str(sites)),
            *("--largest", str(largest), "--log", str(folder / LOG)),
        ]

    return local.Server("web", command=command, answers=local.listens, data=folder, environ=nodes.packages())


def _unchanged(request: Request, headers: Mapping[str, str]) -> bool:
    """RFC 9110 13.2.2: If-None-Match decides where it is given, else If-Modified-Since."""
    asked = request.headers.get("if-none-match")
    if asked is not None:
        return headers.get("ETag") == asked
    since = request.headers.get("if-modified-since")
    if since is None or "Last-Modified" not in headers:
        return False
    try:
        return parsedate_to_datetime(headers["Last-Modified"]) <= parsedate_to_datetime(since)
    except ValueError:
        return False


async def _run(options: argparse.Namespace) -> None:
    graph = small_web.build(options.seed, sites=options.sites, largest=options.largest)
    with options.log.open("a") as log:
        serving = await serve(graph, log, port=options.port)
        print(f"web {local.LOOPBACK}:{serving.port}", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            serving.close()


def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m coordinator.web_demo", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="loopback port, 0 = any free one")
    parser.add_argument("--seed", type=int, default=7, help="which web")
    parser.add_argument("--sites", type=int, default=small_web.SITES, help="how many sites")
    parser.add_argument("--largest", type=int, default=small_web.LARGEST, help="pages of the largest site")
    parser.add_argument("--log", type=Path, required=True, help="one JSON line a request goes here")
    try:
        asyncio.run(_run(parser.parse_args(argv)))
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
