"""The small web as a server of its own, which logs every request the moment its head has arrived.

One process plays all hosts, told apart by the Host header, so nodes are sent to it by `--connect-to`. Its log
is the origins' own, by one clock: the gaps in it judge all nodes together. Start it with
`python -m coordinator.web_demo --port 0 --seed 7 --log FILE`.
"""

import argparse
import asyncio
import json
import socket
import sys
from collections import Counter
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from typing import IO

from aiohttp import web

from coordinator import local, nodes, small_web
from shared import clock

HTML = "text/html"
LOG = "requests.jsonl"


class Origins:
    """All hosts of a web, with what changes while they serve: versions, visits, the log."""

    def __init__(self, graph: small_web.Web, log: IO[str]) -> None:
        self._log = log
        self._sites = {host: site for site in graph.sites for host in site.hosts}
        self._pages = {page.url: page for _, page in graph.pages()}
        self._visits: Counter[str] = Counter()
        self._started_s = clock.boot_s()
        self._started_ms = clock.wall_ms()

    async def answer(self, request: web.Request) -> web.Response:
        """Stamp, answer, log: no await stands between, so the log's order is the order of arrival."""
        boot_s, wall_ms = clock.boot_s(), clock.wall_ms()
        host = request.host.partition(":")[0]
        site = self._sites.get(host)
        url = f"http://{host}{request.raw_path}"
        response = self._respond(request, site, url) if site else web.Response(status=421, text="no such host\n")
        line = {
            "boot_s": round(boot_s, 6),
            "wall_ms": wall_ms,
            "site": site.name if site else None,
            "url": url,
            "status": response.status,
            "conditional": "If-None-Match" in request.headers or "If-Modified-Since" in request.headers,
        }
        self._log.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._log.flush()
        return response

    def _respond(self, request: web.Request, site: small_web.Site, url: str) -> web.Response:
        self._visits[url] += 1
        if request.path == "/robots.txt":
            return self._robots(site, url)
        page = self._pages.get(url)
        match page.kind if page else small_web.Kind.GONE:
            case small_web.Kind.GONE:
                return web.Response(status=404, text="nothing here\n")
            case small_web.Kind.BROKEN:
                return web.Response(status=500, text="broken\n")
            case small_web.Kind.MOVED:
                assert page
                return web.Response(status=302, headers={"Location": page.links[0]})
            case small_web.Kind.PAGE | small_web.Kind.PRIVATE:
                assert page
                return self._page(request, page)

    def _robots(self, site: small_web.Site, url: str) -> web.Response:
        if site.robots is small_web.Robots.ABSENT:
            return web.Response(status=404, text="no rules\n")
        if site.robots is small_web.Robots.LATE and self._visits[url] == 1:
            return web.Response(status=503, text="not yet\n")
        return web.Response(text=small_web.robots_text(site))

    def _page(self, request: web.Request, page: small_web.Page) -> web.Response:
        version = self._version(page)
        headers = self._validators(page, version)
        if _unchanged(request, headers):
            return web.Response(status=304, headers=headers)
        return web.Response(text=small_web.body(page, version), content_type=HTML, headers=headers)

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


def application(graph: small_web.Web, log: IO[str]) -> web.Application:
    """One application for all hosts."""
    origins = Origins(graph, log)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", origins.answer)
    return app


async def serve(graph: small_web.Web, log: IO[str], *, port: int = 0) -> tuple[web.AppRunner, int]:
    """Start on loopback; returns the runner, whose `cleanup()` stops it, and the port."""
    runner = web.AppRunner(application(graph, log), access_log=None, keepalive_timeout=30, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=512).start()
    return runner, int(runner.addresses[0][1])


def process(folder: Path, *, seed: int, sites: int) -> local.Server:
    """The same in a process of its own, not started; its log is requests.jsonl in the folder."""

    def command(port: int, _peer_port: int) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "coordinator.web_demo"),
            *("--port", str(port), "--seed", str(seed), "--sites", str(sites)),
            *("--log", str(folder / LOG)),
        ]

    return local.Server("web", command=command, answers=_listens, data=folder, environ=nodes.packages())


def _listens(port: int) -> bool:
    """A bare connection, which the origins' log does not see."""
    try:
        socket.create_connection((local.LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def _unchanged(request: web.Request, headers: dict[str, str]) -> bool:
    """RFC 9110 13.2.2: If-None-Match decides where it is given, else If-Modified-Since."""
    asked = request.headers.get("If-None-Match")
    if asked is not None:
        return headers.get("ETag") == asked
    since = request.headers.get("If-Modified-Since")
    if since is None or "Last-Modified" not in headers:
        return False
    try:
        return parsedate_to_datetime(headers["Last-Modified"]) <= parsedate_to_datetime(since)
    except ValueError:
        return False


async def _run(options: argparse.Namespace) -> None:
    graph = small_web.build(options.seed, sites=options.sites, largest=options.largest)
    with options.log.open("a") as log:
        runner, port = await serve(graph, log, port=options.port)
        print(f"web 127.0.0.1:{port}", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


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
