"""An address that stands for a store's: bytes pass through unread until it is told to go silent, for drills.

Silent as a broken switch is: nothing is refused, closed or lost. What was sent meanwhile arrives once it is mended,
as TCP would send it again. It knows no protocol; a connection is closed when either side closes it.
"""

import asyncio
import contextlib

from coordinator import local

CHUNK_BYTES = 64 * 1024
CONNECT_S = 5.0  # to the store; a node's own deadlines are shorter


class Relay:
    """One listening port on loopback, and the address behind it."""

    def __init__(self, host: str, port: int) -> None:
        self.behind = (host, port)
        self.address = ""
        """HOST:PORT, once started."""
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; returns the address."""
        self._server = await asyncio.start_server(self._accept, local.LOOPBACK, 0)
        self.address = f"{local.LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    def cut(self) -> None:
        """From now on nothing passes, in either direction; new connections are taken and left waiting."""
        self._whole.clear()

    def mend(self) -> None:
        """What waits passes, and all that follows."""
        self._whole.set()

    async def close(self) -> None:
        """Stop listening and close every connection; again is harmless."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        try:
            await self._join(reader, writer)
        except asyncio.CancelledError:
            pass  # closed: asyncio's streams would report a cancelled handler as an error
        finally:
            self._links.discard(link)
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection for as long as both sides want it."""
        await self._whole.wait()
        try:
            async with asyncio.timeout(CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(*self.behind)
        except OSError:  # TimeoutError is one
            return
        pumps = {
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction, to its end. While it is cut that end is no news either."""
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        await self._whole.wait()
