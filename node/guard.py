"""The guard where the bytes leave: every connect and request write asks, in the step that makes it.

It knows sockets and one fetch's permission, and nothing of HTTP, DNS or of who owns what. A fetch is one
`Contact`; the context variable `CONTACT` carries it to the socket that aiohttp makes (in the fetch's own
task, or in one that aiohttp starts from it, which inherits a copy of the context). A pooled connection is bound
anew by `GuardedSocket.contact`: the loop's callbacks for it still run in the context of its first fetch.
Source: ARCHITECTURE.md, the guard (P1).
"""

import contextlib
import contextvars
import dataclasses
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from shared import clock

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SYN_RETRIES = 1  # one SYN more at most, so that the kernel is done with an unanswered connect within seconds (P1)
USER_TIMEOUT_MS = 2_000  # the kernel re-sends unanswered bytes no longer than this: the larger part of `wire_s` (P1)
LINGER_ZERO = struct.pack("ii", 1, 0)  # close() sends a reset and drops what the kernel still holds


class RefusalError(ConnectionAbortedError):
    """The guard let nothing out, or reset what was let out too late; the text is the reason.

    An OSError, because asyncio's transports take one from a socket quietly.
    """


@dataclasses.dataclass(frozen=True, slots=True)
class Permit:
    """What one fetch of a site may do, asked anew at every step that could reach the site."""

    site: str
    may_start: Callable[[], str | None]
    """None, or why no request may start now: not_owner, no_authority, not_due, paused."""
    may_send: Callable[[], str | None]
    """The same without the due: for the rest of a request that has started."""
    clock: Callable[[], float]
    """Boot-time seconds."""
    on_late: Callable[[float], None]
    """Told the seconds from the guard's clock read to the end of the system call, when they were too many."""
    check_s: float = 0.25


class Contact:
    """One fetch on the wire: at most one connect and one request, what was let through, and why it ended."""

    def __init__(self, permit: Permit) -> None:
        self.permit = permit
        self.socket: GuardedSocket | None = None
        self.started_boot_s: float | None = None
        self.started_wall_ms = 0
        self.refusal: str | None = None
        self.begun = False
        self.written = False

    @property
    def sent(self) -> bool:
        """A connect or a request write was let through: the site may have noticed."""
        return self.started_boot_s is not None

    @contextlib.contextmanager
    def start(self, sock: "GuardedSocket") -> Iterator[None]:
        """Round the system call that opens a connection or begins a request."""
        with self._passing(sock, self.permit.may_start) as read_s:
            if self.started_boot_s is None:
                self.started_boot_s, self.started_wall_ms = read_s, clock.wall_ms()
            yield

    @contextlib.contextmanager
    def go_on(self, sock: "GuardedSocket") -> Iterator[None]:
        """Round every other system call that sends: the TLS hello, buffered rests."""
        with self._passing(sock, self.permit.may_send):
            yield

    @contextlib.contextmanager
    def _passing(self, sock: "GuardedSocket", judge: Callable[[], str | None]) -> Iterator[float]:
        read_s = self.permit.clock()
        reason = judge()
        if reason is not None:
            self._refuse(sock, reason)
        try:
            yield read_s
        finally:
            # A process may stop between judgement and system call: what left too late is taken back (P1).
            late_s = self.permit.clock() - read_s
            if late_s > self.permit.check_s and self.refusal is None:
                self.permit.on_late(late_s)
                self._refuse(sock, "late")

    def _refuse(self, sock: "GuardedSocket", reason: str) -> None:
        self.refusal = self.refusal or reason
        sock.reset_on_close()
        raise RefusalError(reason)


CONTACT: contextvars.ContextVar[Contact] = contextvars.ContextVar("contact")


class GuardedSocket(socket.socket):
    """A TCP socket whose connect and sends ask the contact it is bound to.

    Only a loop that calls these methods is guarded: asyncio's own selector loop does, uvloop does not.
    """

    contact: Contact

    def connect(self, address: Any) -> None:
        with self.contact.start(self):
            super().connect(address)

    def send(self, data: "ReadableBuffer", flags: int = 0) -> int:
        with self.contact.go_on(self):
            return super().send(data, flags)

    def sendall(self, data: "ReadableBuffer", flags: int = 0) -> None:
        with self.contact.go_on(self):
            super().sendall(data, flags)

    def sendmsg(self, buffers: Iterable["ReadableBuffer"], *args: Any) -> int:
        with self.contact.go_on(self):
            return super().sendmsg(buffers, *args)

    def reset_on_close(self) -> None:
        """From now on closing resets: the kernel forgets unsent bytes."""
        if self.fileno() >= 0:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)


def open_socket(address: tuple[Any, ...]) -> GuardedSocket:
    """A socket for one `getaddrinfo` row, bound to the running fetch; aiohttp's `socket_factory`."""
    family, kind, protocol, _, _ = address
    contact = CONTACT.get()
    sock = GuardedSocket(family, kind, protocol)
    sock.contact = contact
    contact.socket = sock
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, SYN_RETRIES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    return sock
