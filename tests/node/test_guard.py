"""P1: nothing reaches a site unless the permit says so in the step that sends it."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node import dns, fetch, guard
from shared import clock, config, errors, records
from tests.node import origins
from tests.node.origins import Gate, Origin, answering, fetcher, until

URL = "http://example.com/page"


def guard_failure(answer: fetch.Answer) -> str:
    assert isinstance(answer.outcome, records.Failed), answer.outcome
    assert answer.outcome.reason == "guard"
    return answer.outcome.detail


@pytest.mark.parametrize("reason", ["not_owner", "no_authority", "not_due"])
async def test_without_permission_no_connection_is_opened(reason: str) -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch(URL, permit=Gate(start=reason).permit())
        assert guard_failure(answer) == reason
        assert not answer.sent
        # The origin answers one that follows, so its log is complete.
        assert (await fetches.fetch(URL, permit=Gate().permit())).sent
        assert origin.connections == 1


async def test_authority_that_lapses_after_the_connect_sends_no_byte() -> None:
    gate = Gate(starts=[None], start="no_authority")
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch(URL, permit=gate.permit())
        assert guard_failure(answer) == "no_authority"
        assert answer.sent, "the connect was let through: it counts"
        await until(lambda: origin.closed == 1)
        assert (origin.connections, origin.received) == (1, b"")
    assert gate.asked == 2


async def test_authority_that_lapses_before_the_tls_hello_sends_no_byte() -> None:
    gate = Gate(send="no_authority")
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch("https://example.com/", permit=gate.permit())
        assert guard_failure(answer) == "no_authority"
        await until(lambda: origin.closed == 1)
        assert (origin.connections, origin.received) == (1, b"")


async def test_authority_that_lapses_after_the_tls_handshake_sends_no_request(tmp_path: Path) -> None:
    server, client = origins.certificate(tmp_path)
    gate = Gate(starts=[None], start="not_owner")
    async with Origin(answering(origins.OK), tls=server) as origin, fetcher(origin.port, tls=client) as fetches:
        answer = await fetches.fetch("https://example.com/", permit=gate.permit())
        assert guard_failure(answer) == "not_owner"
        await until(lambda: origin.closed == 1)
        assert (origin.connections, origin.received) == (1, b"")


async def test_a_pooled_tls_connection_asks_the_permit_of_the_second_fetch(tmp_path: Path) -> None:
    server, client = origins.certificate(tmp_path)
    async with Origin(answering(origins.OK), tls=server) as origin, fetcher(origin.port, tls=client) as fetches:
        assert isinstance(
            (await fetches.fetch("https://example.com/", permit=Gate().permit())).outcome, records.Fetched
        )
        answer = await fetches.fetch("https://example.com/", permit=Gate(send="no_authority").permit())
        assert guard_failure(answer) == "no_authority"
        await until(lambda: origin.closed == 1)
        assert (origin.connections, len(origin.requests)) == (1, 1)


@pytest.mark.parametrize("reason", ["not_due", "no_authority"])
async def test_a_pooled_connection_asks_again(reason: str) -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        first = await fetches.fetch(URL, permit=Gate().permit())
        assert isinstance(first.outcome, records.Fetched)
        again = await fetches.fetch(URL, permit=Gate().permit())
        assert isinstance(again.outcome, records.Fetched)
        assert (origin.connections, len(origin.requests)) == (1, 2), "the pool was used"
        refused = await fetches.fetch(URL, permit=Gate(start=reason).permit())
        assert guard_failure(refused) == reason
        assert not refused.sent
        await until(lambda: origin.closed == 1)
        assert (origin.connections, len(origin.requests)) == (1, 2)


def stopping(after_reads: int, for_s: float) -> Callable[[], float]:
    """A boot clock of a process that stops once: `for_s` seconds pass before its read number `after_reads`."""
    reads = 0

    def now() -> float:
        nonlocal reads
        reads += 1
        return clock.boot_s() + (for_s if reads >= after_reads else 0.0)

    return now


# Reads: 1 the call of fetch, 2 and 3 round the connect, 4 and 5 round the request write (6 and 7 its system call).
@pytest.mark.parametrize("after_reads", [3, 7])
async def test_a_late_system_call_is_reset_and_counted(after_reads: int) -> None:
    gate = Gate(now=stopping(after_reads, 0.3))

    async def silent(_: origins.Visitor) -> None:
        await asyncio.Event().wait()

    async with Origin(silent) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch(URL, permit=gate.permit())
        assert guard_failure(answer) == "late"
        assert answer.sent
        assert len(gate.late) == 1
        assert gate.late[0] > 0.25


async def test_a_quick_system_call_is_not_late() -> None:
    gate = Gate(now=stopping(3, 0.2))
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        assert isinstance((await fetches.fetch(URL, permit=gate.permit())).outcome, records.Fetched)
        assert gate.late == []


@contextlib.contextmanager
def connected(gate: Gate) -> Iterator[tuple[guard.GuardedSocket, socket.socket]]:
    """A guarded socket and the peer it is connected to."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        guard.open_socket(guard.Contact(gate.permit()), "127.0.0.1") as ours,
    ):
        ours.settimeout(5)
        ours.connect(server.getsockname())
        peer, _ = server.accept()
        peer.settimeout(5)
        with peer:
            yield ours, peer


def test_the_kernel_gives_up_early() -> None:
    """G: one SYN more at most, unanswered bytes for at most two seconds."""
    with connected(Gate()) as (ours, _):
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT) == 1
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2_000


SENDS: dict[str, Callable[[guard.GuardedSocket, bytes], object]] = {
    "send": lambda sock, data: sock.send(data),
    "sendall": lambda sock, data: sock.sendall(data),
    "sendmsg": lambda sock, data: sock.sendmsg([data]),
}


@pytest.mark.parametrize("how", SENDS)
def test_every_way_to_send_asks_and_a_refusal_resets(how: str) -> None:
    gate = Gate()
    with connected(gate) as (ours, peer):
        SENDS[how](ours, b"let through")
        assert peer.recv(100) == b"let through"
        gate.send = "no_authority"
        with pytest.raises(guard.RefusalError, match="no_authority"):
            SENDS[how](ours, b"held back")
        ours.close()
        with pytest.raises(ConnectionResetError):
            peer.recv(100)


async def test_abort_resets_the_connections_of_one_site() -> None:
    gate = asyncio.Event()

    async def stall(visitor: origins.Visitor) -> None:
        await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun")
        await gate.wait()
        await visitor.send(b"x" * 95)

    async with Origin(stall) as origin, fetcher(origin.port) as fetches:
        lost = asyncio.create_task(fetches.fetch("http://lost.com/", permit=Gate().permit("lost.com")))
        kept = asyncio.create_task(fetches.fetch("http://kept.com/", permit=Gate().permit("kept.com")))
        await until(lambda: len(origin.requests) == 2)
        assert fetches.abort("lost.com") == 1
        answer = await asyncio.wait_for(lost, 2)
        assert answer.outcome == records.Failed(reason="aborted")
        gate.set()
        assert isinstance((await kept).outcome, records.Fetched)
        await until(lambda: origin.resets == 1)
        assert fetches.abort("lost.com") == 0


async def test_abort_ends_a_fetch_that_is_still_connecting() -> None:
    with full_listener() as port:
        async with fetcher(port, connect_s=30) as fetches:
            gate = Gate()
            task = asyncio.create_task(fetches.fetch(URL, permit=gate.permit()))
            await until(lambda: gate.asked == 1)
            assert fetches.abort() == 1
            answer = await asyncio.wait_for(task, 2)
            assert answer.outcome == records.Failed(reason="aborted")
            assert answer.sent


async def test_abort_closes_what_waits_in_the_pool() -> None:
    async with Origin(answering(origins.OK)) as origin, fetcher(origin.port) as fetches:
        await fetches.fetch(URL, permit=Gate().permit())
        assert origin.closed == 0
        assert fetches.abort(origins.SITE) == 0
        await until(lambda: origin.closed == 1)


async def test_a_cancelled_fetch_resets_its_connection() -> None:
    async def watch(visitor: origins.Visitor) -> None:
        await visitor.reader.read()

    async with Origin(watch) as origin, fetcher(origin.port) as fetches:
        task = asyncio.create_task(fetches.fetch(URL, permit=Gate().permit()))
        await until(lambda: len(origin.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: origin.resets == 1)


@contextlib.contextmanager
def full_listener() -> Iterator[int]:
    """A port whose SYNs are dropped: its backlog is full and nobody accepts."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield listener.getsockname()[1]


async def test_an_unanswered_connect_ends_as_a_timeout() -> None:
    with full_listener() as port:
        async with fetcher(port, connect_s=0.3) as fetches:
            answer = await fetches.fetch(URL, permit=Gate().permit())
            assert isinstance(answer.outcome, records.Failed)
            assert answer.outcome.reason == "timeout"
            assert answer.sent


def test_a_loop_that_would_not_ask_the_guard_is_refused() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def start() -> None:
        fetches = fetch.Fetcher(user_agent=origins.AGENT, limits=config.Limits(), resolver=dns.Resolver(), idle_max=1)
        await fetches.start()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(errors.ConfigError):
        runner.run(start())


async def test_certificates_are_checked(tmp_path: Path) -> None:
    server, client = origins.certificate(tmp_path)
    async with Origin(answering(origins.OK), tls=server) as origin:
        for url, tls in (("https://example.com/", None), ("https://other.com/", client)):
            async with fetcher(origin.port, tls=tls) as fetches:
                answer = await fetches.fetch(url, permit=Gate().permit())
                assert isinstance(answer.outcome, records.Failed)
                assert answer.outcome.reason in {"tls_self_signed", "tls_wrong_host"}
        assert origin.requests == []
