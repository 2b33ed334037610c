"""A web for the archive tests: pages that stay (304), that change, that two sites share, that are cut, that moved.

One process that logs as `tests.cluster.web` does. Every site has the same shape; what differs is in its words.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from coordinator import local, nodes, small_web
from tests.cluster import web

SHARED = "/shared.html"
"""One body, the same on every site."""
CUT = "/cut.html"
"""Ends before its Content-Length."""
FAULT = "/fault.html"
"""The handler raises at it."""
PLAIN, CHANGING = "/p/", "/c/"
"""With an ETag, answered by 304 from the second request on; another body at each request."""
MOVED = "/moved"
SHARED_BODY = b"<title>shared</title><p>" + b"the same words on every site " * 40
CUT_BODY = b"<title>cut</title><p>" + b"half of it " * 30


def build(*, sites: int, pages: int) -> small_web.Web:
    return small_web.Web(tuple(_site(i, pages) for i in range(sites)))


def _site(i: int, pages: int) -> small_web.Site:
    name = f"a{i:02}.example"
    home, kind = f"http://{name}/", small_web.Kind.PAGE
    etag = small_web.Validator.ETAG
    rest = [
        *(small_web.Page(f"http://{name}{PLAIN}{k}.html", kind, (home,), etag) for k in range(pages)),
        small_web.Page(f"http://{name}{CHANGING}1.html", kind, (home,), etag, 0.0),
        *(small_web.Page(f"http://{name}{path}", kind) for path in (SHARED, CUT, FAULT)),
        small_web.Page(f"http://{name}{MOVED}", small_web.Kind.MOVED, (home,)),
        small_web.Page(f"http://{name}/gone", small_web.Kind.GONE),
    ]
    front = small_web.Page(home, kind, tuple(page.url for page in rest), etag)
    return small_web.Site(name=name, hosts=(name,), robots=small_web.Robots.ABSENT, pages=(front, *rest), seeded=True)


class Origins(web.Origins):
    """All hosts; the pages that are not as usual are made from the usual answer."""

    def answer(self, path: str, headers: dict[str, str], *, boot_s: float, late_ms: int) -> bytes:
        usual = super().answer(path, headers, boot_s=boot_s, late_ms=late_ms)
        kind = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n"
        if path == SHARED:
            return kind % len(SHARED_BODY) + SHARED_BODY
        if path == CUT:
            return kind % (len(CUT_BODY) + 1_000) + CUT_BODY
        return usual


class Connection(web.Connection):
    """Hangs up in the middle of the body that is cut."""

    def _answer(self, answer: bytes) -> None:
        super()._answer(answer)
        if answer.endswith(CUT_BODY) and self._transport is not None:
            self._transport.close()


def process(folder: Path, *, sites: int, pages: int) -> local.Server:
    """The web in a process of its own, not started; its log is requests.jsonl in the folder."""

    def command(port: int, _peer_port: int) -> list[str]:
        here = (sys.executable, "-P", "-m", "tests.cluster.archive_web")
        return [*here, f"--port={port}", f"--log={folder / web.LOG}", f"--sites={sites}", f"--pages={pages}"]

    return local.Server("web", command=command, answers=local.listens, data=folder, environ=nodes.packages())


async def _serve(options: argparse.Namespace) -> None:
    with options.log.open("a") as log:
        origins = Origins(build(sites=options.sites, pages=options.pages), log, slow_s=0.0)
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: Connection(origins), local.LOOPBACK, options.port, backlog=512)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("port", "sites", "pages"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
