"""A relay on a node's way to etcd and Redis that loses, delays, repeats or cuts one kind of message: `python -m ...`.

It runs inside the node's machine. To etcd it passes gRPC calls on as raw bytes, with their metadata, deadlines and
status; to Redis it passes bytes. The rules are read from a file, anew whenever it changes.
"""

import argparse
import asyncio
import contextlib
import random
import signal
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from shared import etcd, etcdrpc
from tests.torture import rules

Relay = rules.Handle  # what the harness holds

LOOK_S = 0.02
LATE_S = 10.0  # a late call's own deadline: nobody waits for it
CHUNK = 65_536
UNARY = {
    "/etcdserverpb.KV/Range": "look",
    "/etcdserverpb.Lease/LeaseGrant": "lease",
    "/etcdserverpb.Lease/LeaseRevoke": "lease",
}
STREAMS = {"/etcdserverpb.Lease/LeaseKeepAlive": "keepalive", "/etcdserverpb.Watch/Watch": "watch"}
TXN = "/etcdserverpb.KV/Txn"
HOP = ("grpc-", "user-agent", "te", "content-type", ":")  # of one connection, or set by gRPC itself
# Calls are passed on in order of arrival; a client that is told of a lost connection must hear it at once.
CHANNEL = (*etcd.CHANNEL, ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class Rules:
    """The rules now in force."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._stamp: tuple[int, int] | None = None
        self._rules: tuple[rules.Rule, ...] = ()
        self._rng = random.Random()

    def now(self) -> tuple[rules.Rule, ...]:
        try:
            seen = self._control.stat()
        except FileNotFoundError:
            self._stamp, self._rules = None, ()
            return ()
        stamp = (seen.st_ino, seen.st_mtime_ns)
        if stamp != self._stamp:
            self._stamp, self._rules = stamp, rules.read(self._control)
        return self._rules

    def of(self, channel: str) -> dict[str, rules.Rule]:
        """By deed, those that meet this one message."""
        return {rule.deed: rule for rule in self.now() if rule.meets(channel) and self._rng.random() < rule.share}

    def seconds(self, rule: rules.Rule | None) -> float:
        return rule.seconds(self._rng) if rule else 0.0


def kind_of(method: str, request: bytes) -> str:
    """The channel of a unary call; a transaction is known by the keys that it writes."""
    if method != TXN:
        return UNARY.get(method, "other")
    try:
        txn = etcdrpc.TxnRequest.FromString(request)
    except ValueError:
        return "other"
    puts = {_family(op.request_put.key) for op in txn.success if op.WhichOneof("request") == "request_put"}
    drops = {
        _family(op.request_delete_range.key) for op in txn.success if op.WhichOneof("request") == "request_delete_range"
    }
    guarded = any(_family(compare.key) == "members" for compare in txn.compare)
    kinds = (
        ("propose", "view" in puts),
        ("leave", "beats" in puts and "members" in drops),
        ("confirm", "beats" in puts and guarded),
        ("resign", "beats" in puts),
        ("join", "members" in puts and "rejoin" in drops),
        ("weigh", "members" in puts),
    )
    return next((kind for kind, fits in kinds if fits), "other")


def _family(key: bytes) -> str:
    """members, beats, view...: what follows /crawlring/CLUSTER/."""
    parts = key.decode(errors="replace").split("/")
    return parts[3] if len(parts) > 3 else ""


@dataclass
class Member(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Everything that arrives for one etcd member."""

    channel: Any
    rules: Rules
    late: set[asyncio.Task[Any]] = field(default_factory=set)

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method

        async def unary(request: bytes, context: Any) -> bytes:
            return await self._unary(method, request, context)

        async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async for answer in self._stream(method, requests, context):
                yield answer

        if method in STREAMS:
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)

    async def _unary(self, method: str, request: bytes, context: Any) -> bytes:
        answer: bytes
        met = self.rules.of(kind_of(method, request))
        if "drop" in met:
            await _never()
        call = self.channel.unary_unary(method)
        metadata = _metadata(context)

        async def deliver(delay_s: float, timeout_s: float | None) -> tuple[bytes, Any]:
            await asyncio.sleep(delay_s)
            sent = call(request, metadata=metadata, timeout=timeout_s)
            answer: bytes = await sent
            return answer, await sent.trailing_metadata()

        if "repeat" in met:
            self._keep(deliver(self.rules.seconds(met["repeat"]), LATE_S))
        try:
            if "delay" in met or "lose" in met:
                # It is on its way, whether or not its sender still waits.
                sending = self._keep(deliver(self.rules.seconds(met.get("delay")), LATE_S))
                answer, trailing = await asyncio.shield(sending)
            else:
                answer, trailing = await deliver(0.0, context.time_remaining())
        except grpc.aio.AioRpcError as error:
            if "lose" in met:
                await _never()
            await asyncio.sleep(self.rules.seconds(met.get("delay")))
            await context.abort(error.code(), error.details() or "", _passed(error.trailing_metadata()))
            raise AssertionError("abort raises") from error
        if "lose" in met:
            await _never()
        await asyncio.sleep(self.rules.seconds(met.get("delay")))
        context.set_trailing_metadata(_passed(trailing))
        return answer

    async def _stream(self, method: str, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        kind = STREAMS[method]

        async def outward() -> AsyncIterator[bytes]:
            async for request in requests:
                met = self.rules.of(kind)
                if "drop" in met and kind != "watch":
                    await _never()
                await asyncio.sleep(self.rules.seconds(met.get("delay")))
                yield request
                if "repeat" in met:
                    await asyncio.sleep(self.rules.seconds(met["repeat"]))
                    yield request

        call = self.channel.stream_stream(method)(
            outward(), metadata=_metadata(context), timeout=context.time_remaining()
        )
        try:
            async for answer in call:
                met = self.rules.of(kind)
                if "drop" in met or "lose" in met:
                    continue
                await asyncio.sleep(self.rules.seconds(met.get("delay")))
                yield answer
        except grpc.aio.AioRpcError as error:
            if {"drop", "lose"} & self.rules.of(kind).keys():
                await _never()
            await context.abort(error.code(), error.details() or "", _passed(error.trailing_metadata()))
        finally:
            call.cancel()

    def _keep(self, work: Any) -> "asyncio.Task[Any]":
        """A call that outlives its caller; how it ends is nobody's business then."""
        task = asyncio.get_running_loop().create_task(work)
        self.late.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self.late.discard(task)
        if not task.cancelled():
            task.exception()


class Bytes:
    """One listening port for Redis; a connection there is one to the server."""

    def __init__(self, server: tuple[str, int], held: Rules) -> None:
        self._server = server
        self._rules = held

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if "reset" in self._rules.of("redis"):
                return _reset(writer)
            await self._while("drop")
            there_reader, there_writer = await asyncio.open_connection(*self._server)
        except OSError:
            return _reset(writer)
        ways = [
            asyncio.ensure_future(self._pass(reader, there_writer)),
            asyncio.ensure_future(self._pass(there_reader, writer)),
            asyncio.ensure_future(self._until_reset()),
        ]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            cut = ways[2] in done or any(way.exception() is not None for way in done)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, there_writer):
            _reset(end) if cut else end.close()
        return None

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the sender ends; what was read is sent in order, late as the rules say."""
        while chunk := await reader.read(CHUNK):
            await self._while("drop")
            await asyncio.sleep(self._rules.seconds(self._rules.of("redis").get("delay")))
            writer.write(chunk)
            await writer.drain()

    async def _while(self, deed: str) -> None:
        """Hold on: TCP sends again what was lost, so it arrives once the way is open."""
        while deed in self._rules.of("redis"):
            await asyncio.sleep(LOOK_S)

    async def _until_reset(self) -> None:
        while "reset" not in self._rules.of("redis"):
            await asyncio.sleep(LOOK_S)


async def _never() -> None:
    """Until the caller gives up, which cancels this."""
    await asyncio.Event().wait()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _metadata(context: Any) -> tuple[tuple[str, Any], ...]:
    return _passed(context.invocation_metadata())


def _passed(metadata: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in metadata or () if not key.startswith(HOP))


async def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    held = Rules(options.control)
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    async with contextlib.AsyncExitStack() as stack:
        for here, there in zip(options.listen, options.etcd, strict=True):
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(there, options=CHANNEL))
            server = grpc.aio.server(options=(("grpc.so_reuseport", 0), *_LIMITS))
            server.add_generic_rpc_handlers((Member(channel, held),))
            assert server.add_insecure_port(here), here
            await server.start()
            stack.push_async_callback(server.stop, 0)
        if options.redis:
            host, _, port = options.redis_listen.rpartition(":")
            bytes_server = await asyncio.start_server(Bytes(_address(options.redis), held).serve, host, int(port))
            stack.callback(bytes_server.close)
        print("ready", flush=True)
        await over.wait()


_LIMITS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # as etcd
    ("grpc.keepalive_permit_without_calls", 1),
)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--etcd", type=lambda text: text.split(","), required=True, help="HOST:PORT,... of the members")
    parser.add_argument("--listen", type=lambda text: text.split(","), required=True, help="one HOST:PORT for each")
    parser.add_argument("--redis", help="HOST:PORT")
    parser.add_argument("--redis-listen", help="HOST:PORT")
    parser.add_argument("--control", type=Path, required=True, help="the file with the rules")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
