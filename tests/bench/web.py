"""The web that all contenders crawl: 2,000 pages of about 20 KB with 40 links each, on 1,000 hosts, behind nginx.

Half of a page's links stay on its host (absolute and relative paths, `../`, a query with entities, a fragment), half
lead to hosts drawn by a Zipf law of exponent 1.05, some of them in upper case, with `./`, `utm_source` or a fragment.
A decoy stands in a script of each page. Every host has every page, so there are 2 million URLs and more, and
`/robots.txt` allows everything. Everything follows from one seed: the web is the same in each run.
Without nginx a server of our own answers, single-threaded and with everything in memory; the results say which it was.
"""

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coordinator import local, nodes

PAGES, HOSTS, ZIPF, SEED = 2_000, 1_000, 1.05, 7
LINKS_INSIDE = LINKS_OUTSIDE = 20
WORDS_A_PARAGRAPH = 62  # 40 paragraphs of it make 20 KB
ROBOTS = b"User-agent: *\nDisallow: /private/\nAllow: /\n"
WORDS = (
    *("the", "of", "and", "crawl", "ring", "node", "site", "page", "politeness", "lease", "epoch", "frontier"),
    *("store", "handoff", "delay", "robots", "sitemap", "archive", "content", "digest"),
)
# Its worker would be another user, who may not read a temporary folder.
AS_ROOT = "user root;\n"
NGINX = ("nginx", "/usr/sbin/nginx")

CONFIG = """
{user}worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  open_file_cache max=4000;
  keepalive_requests 100000000;
  types {{ text/html html; text/plain txt; }}
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port} backlog=2048; server_name _; root {folder}/pages; }}
}}
"""

INSIDE = ("/p/{page}.html", "{page}.html", "../p/{page}.html", "/p/{page}.html?a=1&amp;b=2", "/p/{page}.html#top")
OUTSIDE = (
    "http://{host}:{port}/p/{page}.html",
    "http://{HOST}:{port}/p/{page}.html",
    "http://{host}:{port}/./p/{page}.html",
    "http://{host}:{port}/p/{page}.html?utm_source=x",
    "http://{host}:{port}/p/{page}.html#frag",
)


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a page: to `page` on host number `host`, or on the page's own host where that is None."""

    host: int | None
    page: int
    form: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The web as it runs."""

    port: int
    server: str
    """nginx, or that it is our own."""

    @property
    def address(self) -> str:
        return f"{local.LOOPBACK}:{self.port}"

    def seeds(self) -> list[str]:
        """The start pages, the same for all."""
        return [url(host, host, self.port) for host in range(3)]

    def walk(self, count: int) -> Iterator[str]:
        """The first `count` URLs that a crawl breadth first comes by: what a loop that follows no links is given."""
        return itertools.islice(_walk(links(), self.port), count)


def host_name(number: int) -> str:
    return f"www.site{number:04}.example"


def url(host: int, page: int, port: int) -> str:
    return f"http://{host_name(host)}:{port}/p/{page}.html"


def links() -> list[list[Link]]:
    """Each page's links, in the order they stand in."""
    rng = random.Random(SEED)
    weights = list(itertools.accumulate(1 / (rank + 1) ** ZIPF for rank in range(HOSTS)))
    pages = []
    for _ in range(PAGES):
        inside = [Link(None, rng.randrange(PAGES), rng.choice(INSIDE)) for _ in range(LINKS_INSIDE)]
        hosts = rng.choices(range(HOSTS), cum_weights=weights, k=LINKS_OUTSIDE)
        outside = [Link(host, rng.randrange(PAGES), rng.choice(OUTSIDE)) for host in hosts]
        pages.append(rng.sample(inside + outside, LINKS_INSIDE + LINKS_OUTSIDE))
    return pages


def body(page: int, its_links: list[Link], port: int) -> str:
    """A page's HTML."""
    rng = random.Random(f"{SEED} {page}")
    paragraphs = "".join(
        f'<p>{" ".join(rng.choices(WORDS, k=WORDS_A_PARAGRAPH))} <a href="{_href(link, port)}">{rng.choice(WORDS)}</a></p>'
        for link in its_links
    )
    decoy = "<script>var x = '<a href=\"/decoy\">';</script>"
    head = f"<head><meta charset=utf-8><title>Page {page}</title>{decoy}</head>"
    return f"<!doctype html><html>{head}<body><h1>Page {page}</h1>{paragraphs}</body></html>"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Origin]:
    """Write the pages into the folder and answer for all hosts until the exit."""
    program = next(filter(None, map(shutil.which, NGINX)), None)
    server = local.Server(
        "origin",
        command=lambda port, _: _command(program, folder, port),
        answers=local.listens,
        data=folder,
        environ=nodes.packages(),
    )
    with local.running(server):
        name = "nginx" if program else "a server of our own (no nginx here)"
        yield Origin(server.port, name)


def _command(program: str | None, folder: Path, port: int) -> list[str]:
    pages = folder / "pages" / "p"
    pages.mkdir(parents=True, exist_ok=True)
    for number, its_links in enumerate(links()):
        (pages / f"{number}.html").write_text(body(number, its_links, port))
    (folder / "pages" / "robots.txt").write_bytes(ROBOTS)
    if program is None:
        return [sys.executable, "-P", "-m", "tests.bench.web", str(folder / "pages"), str(port)]
    settings = folder / "nginx.conf"
    settings.write_text(CONFIG.format(folder=folder, port=port, user=AS_ROOT if os.geteuid() == 0 else ""))
    return [program, "-p", str(folder), "-c", str(settings)]


def _href(link: Link, port: int) -> str:
    if link.host is None:
        return link.form.format(page=link.page)
    host = host_name(link.host)
    return link.form.format(host=host, HOST=host.upper(), port=port, page=link.page)


def _walk(pages: list[list[Link]], port: int) -> Iterator[str]:
    waiting = deque((host, host) for host in range(3))
    seen = set(waiting)
    while waiting:
        host, page = waiting.popleft()
        yield url(host, page, port)
        for link in pages[page]:
            there = (host if link.host is None else link.host, link.page)
            if there not in seen:
                seen.add(there)
                waiting.append(there)


class _Answering(asyncio.Protocol):
    """Answers each request by its path alone; understands nothing but GET without a body."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *heads, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for head in heads:
            path = head.split(b" ", 2)[1].partition(b"?")[0]
            self._transport.write(self._answers.get(path, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))


def _answers(folder: Path) -> dict[bytes, bytes]:
    found = {}
    for path in folder.rglob("*.*"):
        kind = "text/html" if path.suffix == ".html" else "text/plain"
        content = path.read_bytes()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        found[f"/{path.relative_to(folder)}".encode()] = head.encode() + content
    return found


async def _serve(folder: Path, port: int) -> None:
    answers = _answers(folder)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Answering(answers), local.LOOPBACK, port, backlog=2048
    )
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
