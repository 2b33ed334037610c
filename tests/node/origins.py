"""Raw TCP origins on loopback: they send exact bytes and keep their own log of what reached them."""

import asyncio
import contextlib
import dataclasses
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from node import dns, fetch, guard
from shared import clock, config

AGENT = "Test/1.0 (+https://example.org/bot)"
SITE = "example.com"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"
Script = Callable[["Visitor"], Awaitable[None]]


@dataclasses.dataclass
class Visitor:
    """One connection as the origin's script sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class Origin:
    """Answers each request by its script; `requests`, `received`, `connections` and `resets` are its own log."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._visits: list[tuple[asyncio.StreamWriter, asyncio.Task[Any] | None]] = []
        self.port = 0
        self.connections = 0
        self.closed = 0
        self.resets = 0
        self.received = b""
        self.requests: list[bytes] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer, task in self._visits:
            with contextlib.suppress(AttributeError):  # one that is closed already has no loop any more
                writer.transport.abort()
            if task is not None:
                task.cancel()
        await until(lambda: self.closed == self.connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._visits.append((writer, asyncio.current_task()))
        try:
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    data = await reader.read(1)
                    if not data:
                        return
                    head += data
                    self.received += data
                self.requests.append(head)
                await self._script(Visitor(reader, writer, len(self.requests)))
                if writer.is_closing():
                    return
        except ConnectionError:
            self.resets += 1
        except asyncio.CancelledError:
            pass  # the origin closes; asyncio tells a handler that is cancelled as an error
        finally:
            self.closed += 1
            writer.close()


def answering(*answers: bytes, close: bool = False) -> Script:
    """Send the answers one request after another, the last for ever; None of them is looked at."""

    async def script(visitor: Visitor) -> None:
        await visitor.send(answers[min(visitor.number, len(answers)) - 1])
        if close:
            visitor.writer.close()

    return script


@dataclasses.dataclass
class Gate:
    """A permit whose answers change on cue, and which writes down what it was asked."""

    starts: list[str | None] = dataclasses.field(default_factory=list)
    """Answers of may_start one after another; afterwards `start`."""
    start: str | None = None
    send: str | None = None
    late: list[float] = dataclasses.field(default_factory=list)
    now: Callable[[], float] = clock.boot_s
    asked: int = 0

    def may_start(self) -> str | None:
        self.asked += 1
        return self.starts.pop(0) if self.starts else self.start

    def permit(self, site: str = SITE) -> guard.Permit:
        return guard.Permit(
            site=site,
            may_start=self.may_start,
            may_send=lambda: self.send,
            clock=self.now,
            on_late=self.late.append,
        )


@contextlib.asynccontextmanager
async def fetcher(
    port: int, *, tls: ssl.SSLContext | None = None, idle_max: int = 32, **limits: Any
) -> AsyncIterator[fetch.Fetcher]:
    """A fetcher whose every connection goes to the loopback origin."""
    made = fetch.Fetcher(
        user_agent=AGENT,
        limits=config.Limits(**limits),
        resolver=dns.Resolver(connect_to=f"127.0.0.1:{port}"),
        idle_max=idle_max,
        tls=tls,
    )
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait for a condition, and fail at the deadline."""
    deadline_s = clock.boot_s() + within_s
    while not condition():
        assert clock.boot_s() < deadline_s, "the condition never came true"
        await asyncio.sleep(0.005)


def certificate(folder: Path, host: str = SITE) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(server context, client context that trusts it) of a self-signed certificate."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]
    command += ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-keyout", str(key), "-out", str(cert), "-subj", f"/CN={host}"]
    command += ["-addext", f"subjectAltName=DNS:{host}"]
    subprocess.run(command, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))
