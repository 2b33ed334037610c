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


def process(folder: Path) -> local.Server:
    """In a process of its own, not started; its log is requests.jsonl in the folder."""

    def command(port: int, _peer_port: int) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", "tests.bench.endless_web"),
            *("--port", str(port), "--log", str(folder / LOG)),
        ]

    return local.Server("web", command=command, answers=local.listens, data=folder, environ=nodes.packages())


async def _answer(request: web.Request, log: IO[str]) -> web.Response:
    boot_s = clock.boot_s()
    host = request.host.partition(":")[0]
    line = [round(boot_s, 6), host.removeprefix("www."), request.path, request.headers.get("User-Agent", "")]
    log.write(json.dumps(line) + "\n")
    log.flush()
    number = request.path[1:]
    if not number.isdecimal():
        return web.Response(status=404)
    children = (int(number) * 2 + 1, int(number) * 2 + 2)
    links = "".join(f'<a href="/{child}">{child}</a>' for child in children)
    return web.Response(text=f"<!doctype html><title>{number}</title>{links}", content_type="text/html")


async def _serve(port: int, file: Path) -> None:
    with file.open("a") as log:
        app = web.Application()
        app.router.add_get("/{path:.*}", lambda request: _answer(request, log))
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
    args = parser.parse_args(argv)
    asyncio.run(_serve(args.port, args.log))
    return 0


if __name__ == "__main__":
    sys.exit(main())
