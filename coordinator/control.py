"""How a drill reaches a running `crawlring up`: a socket in its data folder that only its own user can open.

`up` started the nodes and the stores, so it alone signals them: a process id that was used again is never hit. What
a connection broke is healed when it asks for it or ends, however it ends. One drill at a time.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import msgspec

from coordinator import local, nodes, relay
from shared import clock, config, errors, records

NAME = "control"
LINE_BYTES_MAX = 256 * 1024  # the whole configuration travels in one line
ANSWER_S = 90.0  # a store with a large file takes its time to come back
POLL_S = 0.05

Store = Literal["redis", "etcd"]
Deed = Literal["kill", "freeze", "cut", "stop_store", "heal"]
OURS: Mapping[Store, str] = {"redis": "valkey", "etcd": "etcd"}  # by the name of the server that `up` runs


class Ask(records.Record):
    """What `up` is asked to do."""

    do: Deed
    node: str = ""
    stores: tuple[Store, ...] = ()


class Told(records.Record):
    """What came of it."""

    wall_ms: int
    """When it was done."""
    error: str | None = None
    """Why it was not."""


class Hello(records.Record):
    """What runs, told when a drill connects."""

    settings: config.Config
    """Of the nodes, with the stores' own addresses."""
    out: str
    nodes: dict[str, int]
    """Those that run, with their process ids."""
    stores: tuple[Store, ...]
    """Those that `up` started itself."""
    relayed: bool
    """Whether a relay stands between each node and its stores."""
    busy: bool = False
    """Another drill is on, and this connection is closed."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a drill may break."""

    settings: config.Config
    crew: nodes.Crew
    servers: Sequence[local.Server]
    relays: Mapping[str, Mapping[Store, Sequence[relay.Relay]]] = field(default_factory=dict)
    """node -> store -> what stands in between."""

    def hello(self, *, busy: bool) -> Hello:
        running = {server.name for server in self.servers}
        return Hello(
            settings=self.settings,
            out=str(self.crew.place.out),
            nodes={node: self.crew.pid(node) for node in self.crew.alive()},
            stores=tuple(store for store, name in OURS.items() if name in running),
            relayed=bool(self.relays),
            busy=busy,
        )


class Control:
    """`up`'s side."""

    def __init__(self, stage: Stage, data: Path) -> None:
        self._stage = stage
        self._data = data
        self._server: asyncio.Server | None = None
        self._drill: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """A drill is on."""
        return self._drill is not None

    async def start(self) -> None:
        """Listen in the data folder, which this process has locked: what lies there is of one that is gone."""
        (self._data / NAME).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with _short(self._data) as path:
                listening.bind(path)
        except OSError as error:
            listening.close()
            print(f"no drills here: {self._data} takes no socket ({error.strerror})", file=sys.stderr, flush=True)
            return
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._accept, sock=listening, limit=LINE_BYTES_MAX)

    async def close(self) -> None:
        """Heal what is broken, and stop listening."""
        if self._server is not None:
            self._server.close()
            (self._data / NAME).unlink(missing_ok=True)
        if self._drill is not None:
            self._drill.cancel()
            await asyncio.gather(self._drill, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        busy = self.busy
        try:
            if not busy:
                self._drill = asyncio.current_task()
            # Streams report a cancelled handler as an error; a store that does not come back is told by `up` itself.
            with contextlib.suppress(OSError, ValueError, errors.CrawlError, asyncio.CancelledError):
                await _send(writer, self._stage.hello(busy=busy))
                if not busy:
                    await self._serve(reader, writer)
        finally:
            if not busy:
                self._drill = None
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = msgspec.json.Decoder(Ask)
        async with contextlib.AsyncExitStack() as wounds:
            while line := await reader.readline():
                error = None
                try:
                    await _inflict(self._stage, decoder.decode(line), wounds)
                except (errors.CrawlError, msgspec.DecodeError) as wrong:
                    error = str(wrong)
                await _send(writer, Told(wall_ms=clock.wall_ms(), error=error))


async def _inflict(stage: Stage, ask: Ask, wounds: contextlib.AsyncExitStack) -> None:
    """Do what is asked, and remember how it is healed."""
    if ask.do in {"kill", "freeze", "cut"} and ask.node not in stage.crew.alive():
        raise errors.ConfigError(f"{ask.node} does not run")
    match ask.do:
        case "kill":
            stage.crew.kill_one(ask.node)
        case "freeze":
            stage.crew.pause(ask.node)
            wounds.callback(stage.crew.resume, ask.node)
        case "cut":
            relays = stage.relays.get(ask.node, {})
            for between in itertools.chain.from_iterable(relays.get(store, ()) for store in ask.stores):
                between.cut()
                wounds.callback(between.mend)
        case "stop_store":
            names = {OURS[store] for store in ask.stores}
            for server in (one for one in stage.servers if one.name in names):
                server.kill()
                wounds.push_async_callback(_restarted, server)
        case "heal":
            await wounds.aclose()


async def _restarted(server: local.Server) -> None:
    """Start a server again on its data and wait until it answers.

    It is launched from this thread: a child dies with the thread that started it (see tether.py).
    """
    server.launch()
    deadline_s = clock.boot_s() + local.START_S
    while not await asyncio.to_thread(server.answers):
        if server.exit_status is not None or clock.boot_s() > deadline_s:
            raise errors.StoreUnavailable(f"{server.name} did not start again; its log is in {server.data}")
        await asyncio.sleep(POLL_S)


class Link:
    """A drill's side; what it broke is healed at the latest when it is closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: Hello) -> None:
        self.hello = hello
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, data: Path) -> Self:
        """Connect; ConfigError where no `up` runs on this folder, or a drill does already."""
        wanted = socket.socket(socket.AF_UNIX)
        try:
            with _short(data) as path:
                wanted.connect(path)
        except OSError as error:
            wanted.close()
            raise errors.ConfigError(
                f"no `crawlring up` to drill on {data}: {error.strerror}; its --data folder is named by --data"
            ) from None
        reader, writer = await asyncio.open_unix_connection(sock=wanted, limit=LINE_BYTES_MAX)
        try:
            async with asyncio.timeout(ANSWER_S):
                hello = msgspec.json.decode(await reader.readline(), type=Hello)
        except (OSError, ValueError) as error:  # TimeoutError is the one, msgspec.DecodeError the other
            writer.close()
            raise errors.ConfigError(f"the `crawlring up` on {data} does not answer: {error}") from error
        if hello.busy:
            writer.close()
            raise errors.ConfigError(f"another drill is on in {data}")
        return cls(reader, writer, hello)

    @property
    def ended(self) -> bool:
        """`up` has gone."""
        return self._reader.at_eof()

    async def ask(self, do: Deed, *, node: str = "", stores: Sequence[Store] = ()) -> int:
        """Have it done; when it was, in wall milliseconds. StoreUnavailable says why not."""
        try:
            await _send(self._writer, Ask(do=do, node=node, stores=tuple(stores)))
            async with asyncio.timeout(ANSWER_S):
                told = msgspec.json.decode(await self._reader.readline(), type=Told)
        except (OSError, ValueError) as error:
            raise errors.StoreUnavailable(f"`crawlring up` has ended or does not answer: {error}") from error
        if told.error is not None:
            raise errors.StoreUnavailable(told.error)
        return told.wall_ms

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def _send(writer: asyncio.StreamWriter, value: records.Record) -> None:
    writer.write(records.encode_json(value) + b"\n")
    await writer.drain()


@contextlib.contextmanager
def _short(data: Path) -> Iterator[str]:
    """A path to the socket that fits into the 108 bytes of an address, however deep the folder lies."""
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{NAME}"
    finally:
        os.close(folder)
