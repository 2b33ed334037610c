"""A relay is not noticed until it is cut, is silent then as a broken switch is, and loses nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from coordinator import relay

SILENT_S = 0.2  # nothing has come within it; an answer through a whole relay takes a millisecond


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(4096):
            if data == b"bye\n":
                break
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def between() -> AsyncIterator[relay.Relay]:
    """A relay in front of a server that says everything back, and hangs up at `bye`."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    made = relay.Relay("127.0.0.1", server.sockets[0].getsockname()[1])
    await made.start()
    yield made
    await made.close()
    server.close()


async def dial(between: relay.Relay) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = between.address.split(":")
    return await asyncio.open_connection(host, int(port))


async def say(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(SILENT_S):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_bytes_pass_both_ways_unchanged_and_in_order(between: relay.Relay):
    reader, writer = await dial(between)
    data = bytes(range(256)) * 4_000
    sending = asyncio.create_task(say(writer, data))
    async with asyncio.timeout(10):
        assert await reader.readexactly(len(data)) == data
    await sending
    writer.close()


async def test_either_side_hanging_up_is_passed_on(between: relay.Relay):
    reader, writer = await dial(between)
    await say(writer, b"bye\n")
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()


async def test_cut_it_is_silent_and_closes_nothing_and_mended_all_arrives(between: relay.Relay):
    reader, writer = await dial(between)
    await say(writer, b"one\n")
    assert await reader.readline() == b"one\n"
    between.cut()
    await say(writer, b"two\n")
    late_reader, late_writer = await dial(between)
    await say(late_writer, b"three\n")
    assert await is_silent(reader)
    assert await is_silent(late_reader)
    between.mend()
    async with asyncio.timeout(5):
        assert await reader.readline() == b"two\n"
        assert await late_reader.readline() == b"three\n"
    for one in (writer, late_writer):
        one.close()


async def test_the_end_of_a_connection_is_no_news_while_it_is_cut():
    met: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, writer: met.put_nowait(writer), "127.0.0.1", 0)
    between = relay.Relay("127.0.0.1", server.sockets[0].getsockname()[1])
    await between.start()
    reader, writer = await dial(between)
    async with asyncio.timeout(5):
        far_writer = await met.get()
    between.cut()
    far_writer.close()
    assert await is_silent(reader)
    between.mend()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    await between.close()
    server.close()


async def test_a_server_that_is_away_is_a_closed_connection():
    gone = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = gone.sockets[0].getsockname()[1]
    gone.close()
    between = relay.Relay("127.0.0.1", port)
    await between.start()
    reader, writer = await dial(between)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    await between.close()


async def test_while_it_is_cut_nobody_new_reaches_the_server():
    gone = await asyncio.start_server(_echo, "127.0.0.1", 0)
    between = relay.Relay("127.0.0.1", gone.sockets[0].getsockname()[1])
    await between.start()
    between.cut()
    gone.close()  # who is let through is refused there
    reader, writer = await dial(between)
    await say(writer, b"one\n")
    assert await is_silent(reader), "let through, it would have been closed"
    between.mend()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    await between.close()


async def test_closed_while_cut_it_leaves_nothing_open(between: relay.Relay):
    reader, writer = await dial(between)
    between.cut()
    await say(writer, b"one\n")
    assert await is_silent(reader)
    async with asyncio.timeout(5):
        await between.close()
        with contextlib.suppress(ConnectionResetError):  # what was not read resets the connection
            assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await dial(between)
