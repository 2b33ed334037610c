"""The guard where the bytes leave: every connect and request write asks, in the step that makes it.

It knows sockets and one fetch's permission, and nothing of HTTP, DNS or of who owns what. A fetch is one
`Contact`; `open_socket` makes its socket, and a kept connection is bound anew by `GuardedSocket.contact`.
Source: ARCHITECTURE.md, the guard (P1).
"""

import dataclasses
import socket
import struct
from collections.abc import Callable, Iterable
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
        self.written = False

    @property
    def sent(self) -> bool:
        """A connect or a request write was let through: the site may have noticed."""
        return self.started_boot_s is not None

    def start(self, sock: "GuardedSocket") -> float:
        """Ask, before the system call that opens a connection or begins a request; what `passed` wants to know."""
        read_s = self._judged(sock, self.permit.may_start)
        if self.started_boot_s is None:
            self.started_boot_s, self.started_wall_ms = read_s, clock.wall_ms()
        return read_s

    def go_on(self, sock: "GuardedSocket") -> float:
        """The same before every other system call that sends: the TLS hello, buffered rests."""
        return self._judged(sock, self.permit.may_send)

    def passed(self, sock: "GuardedSocket", read_s: float) -> None:
        """After the system call, whatever came of it; `read_s` is when it was judged."""
        # A process may stop between judgement and system call: what left too late is taken back (P1).
        late_s = self.permit.clock() - read_s
        if late_s > self.permit.check_s and self.refusal is None:
            self.permit.on_late(late_s)
            self._refuse(sock, "late")

    def _judged(self, sock: "GuardedSocket", judge: Callable[[], str | None]) -> float:
        read_s = self.permit.clock()
        reason = judge()
        if reason is not None:
            self._refuse(sock, reason)
        return read_s

    def _refuse(self, sock: "GuardedSocket", reason: str) -> None:
        self.refusal = self.refusal or reason
        sock.reset_on_close()
        raise RefusalError(reason)


class GuardedSocket(socket.socket):
    """A TCP socket whose connect and sends ask the contact it is bound to.

    Only a loop that calls these methods is guarded: asyncio's own selector loop does, uvloop does not.
    """

    contact: Contact

    # Written out in each, since a context manager costs as much as the rest of a fetch's checks.
    def connect(self, address: Any) -> None:
        contact = self.contact
        read_s = contact.start(self)
        try:
            super().connect(address)
        finally:
            contact.passed(self, read_s)

    def send(self, data: "ReadableBuffer", flags: int = 0) -> int:
        contact = self.contact
        read_s = contact.go_on(self)
        try:
            return super().send(data, flags)
        finally:
            contact.passed(self, read_s)

    def sendall(self, data: "ReadableBuffer", flags: int = 0) -> None:
        contact = self.contact
        read_s = contact.go_on(self)
        try:
            super().sendall(data, flags)
        finally:
            contact.passed(self, read_s)

    def sendmsg(self, buffers: Iterable["ReadableBuffer"], *args: Any) -> int:
        contact = self.contact
        read_s = contact.go_on(self)
        try:
            return super().sendmsg(buffers, *args)
        finally:
            contact.passed(self, read_s)

    def reset_on_close(self) -> None:
        """From now on closing resets: the kernel forgets unsent bytes."""
        if self.fileno() >= 0:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)


def open_socket(contact: Contact, ip: str) -> GuardedSocket:
    """A socket to connect to a numeric address, bound to one fetch."""
    sock = GuardedSocket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
    sock.contact = contact
    contact.socket = sock
    sock.setblocking(False)  # noqa: FBT003 - the standard library's
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, SYN_RETRIES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    return sock
