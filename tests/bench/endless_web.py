"""A web without end for the measurements: any number of sites, each page linking to two that nobody has seen.

One process plays all sites, told apart by the Host header; page K of a site links to 2K+1 and 2K+2, so its queue
grows by one with each page and is never empty. Its log has one line per request, stamped when the head has
arrived: the boot clock, which a program on the same machine can compare with its own, and the user agent.
Start it with `python -m tests.bench.endless_web --port 0 --log FILE`.
"""

import argparse
import asyncio
import json
import sys
import zlib
from pathlib import Path
from typing import IO

from aiohttp import web

from coordinator import local, nodes
from shared import clock

LOG = "requests.jsonl"


def seeds(sites: int) -> list[str]:
    """The first page of each site."""
    return [f"http://www.{site_name(number)}/0" for number in range(sites)]


def site_name(number: int) -> str:
    return f"site-{number:03}.example"


def process(folder: Path, *, sites: int = 0, cross: int = 0) -> local.Server:
    """In a process of its own, not started; its log is requests.jsonl in the folder.

    With `cross`, each page links to so many pages of others of the first `sites` sites too.
    """

    def command(port: int, _peer_port: int) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "tests.bench.endless_web"),
            *("--port", str(port), "--log", str(folder / LOG)),
            *("--sites", str(sites), "--cross", str(cross)),
        ]

    return local.Server("web", command=command, answers=local.listens, data=folder, environ=nodes.packages())


async def _answer(request: web.Request, log: IO[str], *, sites: int, cross: int) -> web.Response:
    boot_s = clock.boot_s()
    host = request.host.partition(":")[0]
    line = [round(boot_s, 6), host.removeprefix("www."), request.path, request.headers.get("User-Agent", "")]
    log.write(json.dumps(line) + "\n")
    log.flush()
    number = request.path[1:]
    if not number.isdecimal():
        return web.Response(status=404)
    children = (int(number) * 2 + 1, int(number) * 2 + 2)
    query = request.query_string
    links = "".join(f'<a href="/{child}{"?" * bool(query)}{query}">{child}</a>' for child in children)
    source = int("".join(letter for letter in host if letter.isdecimal()))
    mark = zlib.crc32(f"{source} {query}".encode())
    for far in range(cross):  # to pages that nobody else links to, of sites that are not this one
        target = (source + 1 + (int(number) * 31 + far * 17) % (sites - 1)) % sites
        links += f'<a href="http://www.{site_name(target)}/{number}?from={mark}">far</a>'
    return web.Response(text=f"<!doctype html><title>{number}</title>{links}", content_type="text/html")


async def _serve(port: int, file: Path, *, sites: int, cross: int) -> None:
    with file.open("a") as log:
        app = web.Application()
        app.router.add_get("/{path:.*}", lambda request: _answer(request, log, sites=sites, cross=cross))
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=30)
        await runner.setup()
        await web.TCPSite(runner, local.LOOPBACK, port, backlog=512).start()
        try:
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


def main(argv: list[str] | None = None) -> int:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.endless_web")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--sites", type=int, default=0, help="that --cross links to")
    parser.add_argument("--cross", type=int, default=0, help="links of each page to other sites")
    args = parser.parse_args(argv)
    asyncio.run(_serve(args.port, args.log, sites=args.sites, cross=args.cross))
    return 0


if __name__ == "__main__":
    sys.exit(main())
