"""A web of a chosen shape for the cluster tests, served by one process whose log tells which node asked, and when.

All requests are stamped by one clock the moment their heads have arrived, so the log judges every gap. Some pages
are slow: they are logged at once and answered late, so that a request is in flight when a test wants one. SIGUSR1
makes every answer late, SIGUSR2 none but those.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter
from email.utils import formatdate
from pathlib import Path
from typing import IO

from coordinator import local, nodes, small_web, web_demo
from shared import clock
from tests.torture import forest

ANY_HOST = "0.0.0.0"
LOG = "requests.jsonl"
SLOW = forest.SLOW
SLOWED_S = 3.0  # added to every answer after SIGUSR1


def build(*, sites: int, pages: int) -> small_web.Web:
    """Every home page links to all of its site, and to the next site's home, which no seed names every fifth time."""
    homes = [f"http://s{i:02}.example/" for i in range(sites)]
    return small_web.Web(tuple(_site(i, pages, homes) for i in range(sites)))


def _site(i: int, pages: int, homes: list[str]) -> small_web.Site:
    name = f"s{i:02}.example"
    hosts = (name, f"www.{name}") if i % 5 == 1 else (name,)
    robots = small_web.Robots.ABSENT
    if i % 4 == 1:
        robots = small_web.Robots.RULES
    elif i == 2:
        robots, pages = small_web.Robots.SLOW, pages // 2
    following = homes[(i + 1) % len(homes)]
    kind, etag = small_web.Kind, small_web.Validator.ETAG
    rest = [
        small_web.Page(
            f"http://{hosts[k % len(hosts)]}/p/{k}.html",
            kind.PAGE,
            (homes[i],),
            small_web.Validator.NONE if k % 3 == 0 else etag,
            0.0 if k % 4 == 1 else None,
        )
        for k in range(1, pages)
    ]
    if i % 3 == 0:
        rest[pages // 2] = small_web.Page(f"http://{name}{SLOW}1.html", kind.PAGE, (homes[i],), etag)
    if i % 3 == 1:
        rest.append(small_web.Page(f"http://{name}/moved/1", kind.MOVED, (following,)))
    if i % 4 == 0:
        rest.append(small_web.Page(f"http://{name}/gone/1", kind.GONE))
    if robots is not small_web.Robots.ABSENT:
        rest.append(small_web.Page(f"http://{name}/private/1.html", kind.PRIVATE))
    home = small_web.Page(homes[i], kind.PAGE, (*(page.url for page in rest), following), etag)
    return small_web.Site(name=name, hosts=hosts, robots=robots, pages=(home, *rest), seeded=i % 5 != 4)


class Origins:
    """All hosts of the web; every request is logged before it is answered."""

    def __init__(self, graph: small_web.Web, log: IO[str], *, slow_s: float) -> None:
        self.slow_s = slow_s
        self.slowed_s = 0.0
        self._log = log
        self._sites = {host: site for site in graph.sites for host in site.hosts}
        self._pages = {page.url: page for _, page in graph.pages()}
        self._visits: Counter[str] = Counter()

    def answer(self, path: str, headers: dict[str, str], *, boot_s: float, late_ms: int) -> bytes:
        """`boot_s` is when the head was read, `late_ms` how long the kernel had had it."""
        wall_ms = clock.wall_ms()
        host = headers.get("host", "").partition(":")[0]
        site, url = self._sites.get(host), f"http://{host}{path}"
        self._visits[url] += 1
        status, body = 404, "unknown"
        more: dict[str, str] = {}
        if site is not None:
            status, more, body = self._respond(site, path, url, headers.get("if-none-match"))
        line = {
            "boot_s": boot_s,
            "late_ms": late_ms,
            "wall_ms": wall_ms,
            "site": site.name if site else "",  # a host that no page links to: the judge calls it a trespass
            "url": url,
            "status": status,
            "conditional": "if-none-match" in headers,
            "node": headers.get("user-agent", "").rpartition("/")[2].rstrip(")"),
        }
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()
        fields = {"Date": formatdate(usegmt=True), "Content-Type": "text/html; charset=utf-8", **more}
        if status != 304:
            fields["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {status} said\r\n{head}\r\n{body}".encode()

    def _respond(self, site: small_web.Site, path: str, url: str, asked: str | None) -> tuple[int, dict[str, str], str]:
        if path == "/robots.txt":
            return (404, {}, "") if site.robots is small_web.Robots.ABSENT else (200, {}, small_web.robots_text(site))
        page = self._pages.get(url)
        if page is None or page.kind is small_web.Kind.GONE:
            return 404, {}, "gone"
        if page.kind is small_web.Kind.MOVED:
            return 302, {"Location": page.links[0]}, ""
        version = self._visits[url] if page.period_s == 0 else 0
        etag = small_web.etag(page, version)
        more = {"ETag": etag} if page.validator is small_web.Validator.ETAG else {}
        return (304, more, "") if asked == etag else (200, more, small_web.body(page, version))


class Connection(asyncio.Protocol):
    """HTTP/1.1, one GET at a time: the stamp is the first thing that is done."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._transport: asyncio.Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport
        boot_s, late_ms = web_demo.stamp(self._transport)
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
            self._buffer = self._buffer[end + 4 :]
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            path = first.split(" ")[1]
            answer = self._origins.answer(path, headers, boot_s=boot_s, late_ms=late_ms)
            wait_s = self._origins.slowed_s + (self._origins.slow_s if path.startswith(SLOW) else 0)
            if wait_s:
                asyncio.get_running_loop().call_later(wait_s, self._answer, answer)
            else:
                self._answer(answer)

    def _answer(self, answer: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(answer)


def process(folder: Path, *, sites: int, pages: int, slow_s: float, seed: int | None = None) -> local.Server:
    """The web in a process of its own, not started; its log is requests.jsonl in the folder. A seed grows a forest."""

    def command(port: int, _peer_port: int) -> list[str]:
        return web_command(folder / LOG, port=port, sites=sites, pages=pages, slow_s=slow_s, seed=seed)

    return local.Server("web", command=command, answers=local.listens, data=folder, environ=nodes.packages())


def web_command(log: Path, *, port: int, sites: int, pages: int, slow_s: float, seed: int | None = None) -> list[str]:
    """The command of that process; it listens on every address of its machine."""
    return [
        *(sys.executable, "-P", "-m", "tests.cluster.web", f"--port={port}", f"--log={log}"),
        *(f"--sites={sites}", f"--pages={pages}", f"--slow-s={slow_s}"),
        *(() if seed is None else (f"--forest={seed}",)),
    ]


def grown(*, sites: int, pages: int, seed: int | None) -> small_web.Web:
    """The web that such a process serves."""
    return build(sites=sites, pages=pages) if seed is None else forest.grow(sites, pages, seed)


async def _serve(options: argparse.Namespace) -> None:
    with options.log.open("a") as log:
        graph = grown(sites=options.sites, pages=options.pages, seed=options.forest)
        origins = Origins(graph, log, slow_s=options.slow_s)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, setattr, origins, "slowed_s", SLOWED_S)
        loop.add_signal_handler(signal.SIGUSR2, setattr, origins, "slowed_s", 0.0)
        await loop.create_server(lambda: Connection(origins), ANY_HOST, options.port, backlog=512)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--pages", type=int, required=True)
    parser.add_argument("--slow-s", type=float, required=True)
    parser.add_argument("--forest", type=int, metavar="SEED", help="serve the forest of this seed")
    parser.add_argument("--log", type=Path, required=True)
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
