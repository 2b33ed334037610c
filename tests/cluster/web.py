"""A web of a chosen shape for the cluster tests, served by one process whose log tells which node asked, and when.

All requests are stamped by one clock the moment their heads have arrived, so the log judges every gap. Some pages
are slow: they are logged at once and answered late, so that a request is in flight when a test wants one.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import IO

from aiohttp import web

from coordinator import local, nodes, small_web, web_demo
from shared import clock

ANY_HOST = "0.0.0.0"
SLOW = "/slow/"


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


class Origins(web_demo.Origins):
    """The demo's origins, with slow pages and with the node's name (the end of its user agent) in the log."""

    def __init__(self, graph: small_web.Web, log: IO[str], *, slow_s: float) -> None:
        super().__init__(graph, log)
        self._slow_s = slow_s

    async def answer(self, request: web.Request) -> web.Response:
        boot_s, wall_ms = clock.boot_s(), clock.wall_ms()
        host = request.host.partition(":")[0]
        site = self._sites.get(host)
        url = f"http://{host}{request.raw_path}"
        response = self._respond(request, site, url) if site else web.Response(status=421)
        line = {
            "boot_s": boot_s,
            "wall_ms": wall_ms,
            "site": site.name if site else None,
            "url": url,
            "status": response.status,
            "conditional": "If-None-Match" in request.headers,
            "node": request.headers.get("User-Agent", "").rpartition("/")[2].rstrip(")"),
        }
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()
        if request.path.startswith(SLOW):
            await asyncio.sleep(self._slow_s)
        return response


def process(folder: Path, *, sites: int, pages: int, slow_s: float) -> local.Server:
    """The web in a process of its own, not started; its log is requests.jsonl in the folder."""

    def command(port: int, _peer_port: int) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "tests.cluster.web", f"--port={port}", f"--log={folder / web_demo.LOG}"),
            *(f"--sites={sites}", f"--pages={pages}", f"--slow-s={slow_s}"),
        ]

    return local.Server("web", command=command, answers=web_demo._listens, data=folder, environ=nodes.packages())


async def _serve(options: argparse.Namespace) -> None:
    with options.log.open("a") as log:
        app = web.Application()
        origins = Origins(build(sites=options.sites, pages=options.pages), log, slow_s=options.slow_s)
        app.router.add_route("*", "/{path:.*}", origins.answer)
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=30, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, ANY_HOST, options.port, backlog=512).start()
        await asyncio.Event().wait()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--pages", type=int, required=True)
    parser.add_argument("--slow-s", type=float, required=True)
    parser.add_argument("--log", type=Path, required=True)
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
