"""An origin that costs next to nothing, for frontiers of many sites: any host, pages of a few bytes, one log line each.

One process answers every Host header; page K of a site that is kept busy links to its page K+1 and has a text of its own
(else it would soon be an endless pattern), other pages link to nothing, and there is no robots.txt. A line of the log is
the boot clock when the head had arrived, the node (the last word of its user agent), the host and the path. Start it
with `python -m tests.bench.scale_web --port 0 --log FILE`.
"""

import argparse
import asyncio
import hashlib
import sys
from pathlib import Path
from typing import IO

from coordinator import local, nodes
from shared import clock

LOG = "requests.log"
BUSY = b"busy"  # a path that begins so has a next page
FLUSH_S = 0.1
LETTERS = bytes.maketrans(b"0123456789", b"ghijklmnop")  # digits are nothing new to what looks for endless patterns
NONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class Origin(asyncio.Protocol):
    """One connection; requests have no body."""

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        assert self._transport is not None
        first, *lines = head.split(b"\r\n")
        path = first.split(b" ", 2)[1]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        node = fields.get(b"user-agent", b"").rpartition(b"; ")[2].rstrip(b")")
        host = fields.get(b"host", b"").partition(b":")[0]
        self._log.write(b"%.6f %s %s %s\n" % (clock.boot_s(), node, host, path))
        self._transport.write(NONE if path == b"/robots.txt" else page(path))


def page(path: bytes) -> bytes:
    """The answer, head and body."""
    stem, _, number = path[1:].partition(b"-")
    follow = b""
    if stem == BUSY and number.isdigit():
        text = hashlib.sha256(number).hexdigest().encode().translate(LETTERS)
        follow = b'<p>%s</p><a href="/%s-%d">next</a>' % (text, stem, int(number) + 1)
    body = b"<!doctype html><title>" + path[1:] + b"</title>" + follow
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def process(folder: Path) -> local.Server:
    """In a process of its own, not started; its log is in the folder."""

    def command(port: int, _peer_port: int) -> list[str]:
        module = "tests.bench.scale_web"
        return [sys.executable, "-P", "-m", module, "--port", str(port), "--log", str(folder / LOG)]

    return local.Server("web", command=command, answers=local.listens, data=folder, environ=nodes.packages())


async def _serve(port: int, file: Path) -> None:
    with file.open("ab", buffering=1 << 20) as log:
        server = await asyncio.get_running_loop().create_server(
            lambda: Origin(log), local.LOOPBACK, port, backlog=1_024
        )
        async with server:
            while True:
                await asyncio.sleep(FLUSH_S)
                log.flush()


def main(argv: list[str] | None = None) -> int:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale_web")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True)
    args = parser.parse_args(argv)
    asyncio.run(_serve(args.port, args.log))
    return 0


if __name__ == "__main__":
    sys.exit(main())
