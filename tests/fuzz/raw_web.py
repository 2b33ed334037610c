"""Origins that answer with given bytes or by a script, one host each, behind one port; every request is in its log.

The log is written the moment a head has arrived, by one clock. A host without anything of its own has no robots.txt
and a plain page at every path.
"""

import asyncio
import contextlib
import gzip
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from shared import clock

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD_BYTES_MAX = 64 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
ABSENT = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
FLOOD_BYTES = 64 * 1024 * 1024  # nothing here is sent without an end, even to a reader that takes all


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in."""

    boot_s: float
    host: str
    target: str

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.target}"


@dataclass
class RawWeb:
    """`scripts` by (host, target); built by `serving`."""

    scripts: dict[tuple[str, str], Script] = field(default_factory=dict)
    pages: dict[str, bytes] = field(default_factory=dict)
    """Bodies by URL, for hosts that behave."""
    asked: list[Asked] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                boot_s = clock.boot_s()
                first, *lines = head.decode("latin-1").split("\r\n")
                names = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                one = Asked(boot_s, names.get("host", ""), first.split(" ")[1])
                self.asked.append(one)
                script = self.scripts.get((one.host, one.target))
                if script is not None:
                    await script(reader, writer)
                elif one.target == "/robots.txt":
                    writer.write(ABSENT)
                else:
                    body = self.pages.get(one.url, b"plain")
                    writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        writer.close()


def says(raw: bytes, *, then: str = "close", cut: int | None = None) -> Script:
    """These bytes, in two pieces if `cut` says where; then `close`, `reset` or `stay`."""

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in (raw,) if cut is None else (raw[:cut], raw[cut:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.005)
        if then == "reset":
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif then == "close":
            writer.close()

    return script


def floods(first: bytes, again: bytes, *, every_s: float = 0.0) -> Script:
    """One piece, then another again and again until the reader has had enough."""

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        for _ in range(FLOOD_BYTES // len(again)):
            if writer.is_closing():
                return
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(every_s)
        writer.close()

    return script


def hostile() -> dict[str, Script]:
    """Origins by the name of what is wrong with them."""
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    whole = HEAD + b"Content-Length: 10\r\n\r\n0123456789"
    stages = {
        "head-0": b"",
        "status": b"HTTP/1.1 2",
        "field": HEAD + b"X: ",
        "head": HEAD + b"Content-Length: 10\r\n\r\n",
        "body": whole[:-5],
        "chunk": chunked + b"a\r\n01234",
        "chunk-size": chunked + b"1",
        "interim": b"HTTP/1.1 100 Continue\r\n\r\n",
    }
    stopped = {
        f"{then}-at-{stage}": says(raw, then=then)
        for stage, raw in stages.items()
        for then in ("close", "reset", "stay")
    }
    bomb = gzip.compress(b"a" * 20_000_000)
    return stopped | {
        "drip-head": floods(b"", b"H", every_s=0.05),
        "drip-fields": floods(HEAD, b"X: y\r\n", every_s=0.05),
        "drip-body": floods(HEAD + b"\r\n", b"<a href=/drip>", every_s=0.05),
        "drip-chunks": floods(chunked, b"1\r\nx\r\n", every_s=0.05),
        "flood-interim": floods(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 50),
        "hundreds-of-interim": says(b"HTTP/1.1 100 Continue\r\n\r\n" * 300 + whole),
        "flood-fields": floods(HEAD, b"X: y\r\n" * 2_000),
        "flood-field": floods(HEAD + b"X: ", b"y" * 16_384),
        "flood-status": floods(b"HTTP/1.1 200 ", b"O" * 16_384),
        "flood-empty-lines": floods(b"", b"\r\n" * 8_192),
        "flood-body": floods(HEAD + b"\r\n", b"<p>" * 8_192),
        "flood-links": floods(HEAD + b"\r\n", b'<a href="/flood">x</a>' * 2_000),
        "flood-chunks": floods(chunked, b"1\r\nx\r\n" * 2_000),
        "flood-extension": floods(chunked + b"5;", b"a=b;" * 4_096),
        "flood-chunk-size": floods(chunked, b"0" * 16_384),
        "flood-trailer": floods(chunked + b"1\r\nx\r\n0\r\n", b"T: x\r\n" * 2_000),
        "flood-after-204": floods(b"HTTP/1.1 204 No Content\r\n\r\n", b"x" * 16_384),
        "flood-after-304": floods(b"HTTP/1.1 304 Not Modified\r\n\r\n", b"x" * 16_384),
        "flood-after-redirect": floods(b"HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n", b"x" * 16_384),
        "tls-alert": says(b"\x15\x03\x01\x00\x02\x02\x0a"),
        "tls-hello": says(b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76" + bytes(range(112)), then="stay"),
        "ssh": says(b"SSH-2.0-OpenSSH_9.2\r\n", then="stay"),
        "smtp": says(b"220 mail.example ESMTP\r\n", then="stay"),
        "zeros": says(bytes(100_000)),
        "bomb": says(HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb),
        "surplus": says(whole + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", then="stay"),
        "two-at-once": says(whole * 2),
        "rfc7540": says(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18), then="stay"),
    }


@contextlib.contextmanager
def serving(web: RawWeb) -> Iterator[RawWeb]:
    """The web on a port of its own, in a thread of its own."""
    loop = asyncio.new_event_loop()
    serving_now: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
    writers: set[asyncio.StreamWriter] = set()

    def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(web.serve(reader, writer))
        serving_now[task] = writer
        task.add_done_callback(ended)

    def ended(task: "asyncio.Task[None]") -> None:
        writer = serving_now.pop(task)
        if writer.transport.get_write_buffer_size():
            writers.add(writer)  # it closes when the other side has read, which may be never

    server = loop.run_until_complete(asyncio.start_server(met, "127.0.0.1", 0, limit=HEAD_BYTES_MAX, backlog=1_024))
    web.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, name="raw web")
    thread.start()

    async def end() -> None:
        server.close()
        tasks = list(serving_now)
        for writer in [*serving_now.values(), *writers]:
            if writer.transport.get_write_buffer_size() or not writer.is_closing():
                writer.transport.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # the transports close in the next turn of the loop

    try:
        yield web
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
