"""One connection as aiohttp's parser reads it, under the guard: what is sent, what comes in, and where heads end.

It also keeps what went out and what came in as bytes, since the parser only hands on what it made of them. It is the
only file that knows aiohttp's inner parts (`ResponseHandler` and its `data_received`); the tests pin each use. Nothing
here judges: `node.guard` does.
"""

import asyncio
import math
import re
import ssl
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import aiohttp
from aiohttp import client_proto, helpers, http_exceptions

from node import dns, guard

HEAD_BYTES_MAX = 1024 * 1024  # all header lines of one answer together: memory, not manners
INTERIMS_MAX = 512  # 1xx answers and empty lines before the answer itself: each costs a pass over what came with it
INTERIM = re.compile(rb"\s*(?:HTTP/\d\.\d 1\d\d|$)")  # a head that another follows: 1xx, or an empty line
FIRST_LINE_BYTES = 16
PROTOCOL = b"HTTP/"
USUAL = re.compile(rb"HTTP/1\.\d [2-9]\d\d")
CONTENT_LENGTH = re.compile(rb"^content-length[ \t]*:([^\r\n]*)\r?\n", re.IGNORECASE | re.MULTILINE)
SPACE_BEFORE_COLON = re.compile(rb"^([!#$%&'*+.^_`|~0-9A-Za-z-]++)[ \t]++:", re.MULTILINE)
TRANSFER_ENCODING = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)
Judge = Callable[[ssl.SSLObject], str | None]


class Place(NamedTuple):
    """An origin, as connections are kept for it."""

    secure: bool
    host: str
    port: int


class Exchange(guard.Contact):
    """One fetch: the guard's contact, with the address it goes to, the connection it got, and when it is to end.

    Moments are of the loop's clock.
    """

    def __init__(self, permit: guard.Permit) -> None:
        super().__init__(permit)
        self.address: dns.Address | None = None
        self.handler: Handler | None = None
        self.scope: asyncio.Timeout | None = None
        self.end_s = self.step_end_s = math.inf
        """Of the whole, and of the step that it is at."""
        self.quiet_s = math.inf
        """How long nothing may come."""
        self.heard_s = 0.0
        """When the request went out, or a whole head or a piece of a body came; a head that drips is no word."""
        self.aborted = False
        self.wait_s = 0.0
        """Until this fetch may be tried again, where it was not its turn."""
        self.request = b""
        """The request's head as it was written; empty until then."""
        self.head = b""
        """The answer's head as it came; of interim answers nothing is kept."""

    def ends_s(self) -> float:
        """When it has to end, for all that is known now."""
        return min(self.end_s, self.step_end_s, self.heard_s + self.quiet_s)

    def expire(self) -> None:
        """Its time is over: whoever waits for it gets a TimeoutError."""
        self.end_s = self.step_end_s = self.quiet_s = math.inf
        if self.scope is not None and not self.scope.expired():
            self.scope.reschedule(asyncio.get_running_loop().time())

    def reset(self) -> None:
        """Take the connection down at once: the kernel forgets what it has not sent."""
        if self.socket is not None:
            self.socket.reset_on_close()
        if self.handler is not None:
            self.handler.abort()

    def abort(self) -> None:
        """End the fetch from outside."""
        self.aborted = True
        self.reset()
        self.expire()


class Deadlines:
    """Ends the exchanges whose time is over; one timer for all, set to the nearest end that was known."""

    def __init__(self) -> None:
        self.open: set[Exchange] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._at_s = math.inf

    def look_by(self, at_s: float) -> None:
        """Look no later than this: an exchange ends then. Ends that move later need no word."""
        if at_s >= self._at_s:
            return
        self.close()
        self._at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at_s = None, math.inf

    def _look(self) -> None:
        self.close()
        now_s = asyncio.get_running_loop().time()
        for one in self.open:
            if one.ends_s() <= now_s:
                one.expire()
        nearest_s = min((one.ends_s() for one in self.open), default=math.inf)
        if nearest_s < math.inf:
            self.look_by(nearest_s)


class Handler(client_proto.ResponseHandler):
    """aiohttp's protocol, with its transport under the guard and its input cut where heads end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: guard.GuardedSocket,
        place: Place,
        address: dns.Address,
        *,
        lost: "Callable[[Handler], None]",
        judge: Judge | None,
    ) -> None:
        """`lost` is told when the connection has come to its end."""
        super().__init__(loop)
        self.socket, self.place, self.address = sock, place, address
        self.waits_since_s: float | None = None
        """Since when (the loop's clock) it has been idle; None while it is in use."""
        self.tls_fault: str | None = None
        """What is wrong with the server's certificate, where that is told and not refused."""
        self._lost, self._judge = lost, judge
        self.broken: BaseException | None = None
        """Why the body in hand ends before its end."""
        self._used = self._headed = False
        self._head_bytes = self._interims = 0
        self._first_line = b""
        self._seam = b""
        self._held = bytearray()
        self.ambiguous = False
        """The last answer's head told its length in two ways: nobody knows what follows it (RFC 9112 section 6.3)."""

    @property
    def site(self) -> str:
        """Whom it serves, or served last."""
        return self.socket.contact.permit.site

    def begin(self, exchange: Exchange) -> None:
        """The connection serves this exchange from now on, and asks its permit."""
        self._used = self.socket.contact is not exchange
        self.socket.contact = exchange
        exchange.socket, exchange.handler = self.socket, self
        self.broken = None
        self._headed, self._head_bytes, self._interims, self._first_line, self._seam = False, 0, 0, b"", b""
        self._held, self.ambiguous = bytearray(), False

    def ask(self, head: bytes, *, line_max: int, headers_max: int) -> None:
        """Send the head of a GET, and have its answer parsed; raises OSError, for one where the guard refuses."""
        self.set_response_params(
            read_until_eof=True,
            auto_decompress=False,
            max_line_size=line_max,
            max_field_size=line_max,
            max_headers=headers_max,
        )
        if self.transport is None or self.transport.is_closing():
            raise aiohttp.ClientConnectionResetError("closed before it was asked")
        self.transport.write(head)

    async def answer(self) -> tuple[int, tuple[tuple[bytes, bytes], ...], aiohttp.StreamReader]:
        """Status, header fields and body of the answer; interim answers are passed over (RFC 9110 section 15.2)."""
        while True:
            message, body = await self.read()
            if not 100 <= message.code < 200 or message.code == 101:
                return message.code, message.raw_headers, body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        guarded = GuardedTransport(cast("asyncio.Transport", transport), self.socket)
        super().connection_made(cast("asyncio.Transport", guarded))
        secured = transport.get_extra_info("ssl_object") if self._judge is not None else None
        if self._judge is not None and secured is not None:
            self.tls_fault = self._judge(secured)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost(self)
        if exc is not None and self._payload is not None and not self._payload.is_eof():
            # A body that runs until the end of the connection would count as whole after a reset.
            self.broken = exc
        super().connection_lost(exc)

    def set_exception(self, exc: BaseException, exc_cause: BaseException = helpers._EXC_SENTINEL) -> None:  # noqa: SLF001 - the default of the method it overrides
        payload = self._payload
        super().set_exception(exc, exc_cause)
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            # After a fault between chunks nobody tells the reader, who would wait for the total time.
            self.broken = exc
            payload.feed_eof()

    def data_received(self, data: bytes) -> None:
        if data and not self._asked():
            # An answer to no question (a 408 before the server hangs up, a split response) would be taken for the
            # next one's.
            self._lost(self)
            self.force_close()
            self.abort()
            return
        contact = self.socket.contact
        if self._headed and isinstance(contact, Exchange):
            contact.heard_s = self._loop.time()
        if self._headed or not data:
            super().data_received(data)
            return
        if not self._head_bytes and (end := _usual(data)):
            self._headed = True
            self._take_head(data[:end])
            if end < len(data) and self.transport is not None:
                super().data_received(data[end:])
            return
        while data and self.transport is not None:
            if self._headed:
                super().data_received(data)
                return
            piece, data = self._cut(data)
            self._head_bytes += len(piece)
            if self._head_bytes > HEAD_BYTES_MAX or self._interims > INTERIMS_MAX:
                self.set_exception(http_exceptions.LineTooLong(b"head", HEAD_BYTES_MAX))
                self.transport.abort()  # abort() of our own would forget the exception
                return
            self._parse(piece)

    def _asked(self) -> bool:
        """Whether what comes may answer our request: it is out, and its answer has not been read to its end.

        A server that has too many connections may say so at once, before the first request of one.
        """
        return self.waits_since_s is None and (self.socket.contact.written or not self._used)

    def _parse(self, piece: bytes) -> None:
        """Hand a head on when it is whole: as the parser takes it, and kept as it came."""
        self._held += piece
        begin = bytes(self._held[:FIRST_LINE_BYTES]).lstrip()[: len(PROTOCOL)]
        if not PROTOCOL.startswith(begin):
            # Told at once: the end of a head that is none may never come. The parser would take RTSP and ICE, too.
            self.set_exception(http_exceptions.BadStatusLine(repr(begin)))
            assert self.transport is not None, "data_received asks for it"
            self.transport.abort()
        elif not self._first_line:  # `_cut` found an end
            head, self._held = bytes(self._held), bytearray()
            self._take_head(head)

    def _take_head(self, head: bytes) -> None:
        contact = self.socket.contact
        if isinstance(contact, Exchange):
            contact.heard_s = self._loop.time()
            contact.head = head if self._headed else b""
        head, self.ambiguous = _unambiguous(head)
        super().data_received(head)

    def _cut(self, data: bytes) -> tuple[bytes, bytes]:
        """`data` up to the end of a head, if there is one in it, and the rest.

        The parser throws away a whole answer when surplus bytes (after a 204, after Content-Length) come in
        the same piece as its head. Cut there, it is delivered before the surplus is found to be no answer.
        """
        window = self._seam + data
        end = _head_end(window)
        cut = end - len(self._seam) if end else len(data)
        self._first_line = (self._first_line + data[:cut])[:FIRST_LINE_BYTES]
        self._seam = b"" if end else window[-2:]
        if end:
            self._headed = INTERIM.match(self._first_line) is None
            self._interims += not self._headed
            self._first_line = b""
        return data[:cut], data[cut:]


class GuardedTransport:
    """A transport whose first write for an exchange asks whether a request may start."""

    def __init__(self, inner: asyncio.Transport, sock: guard.GuardedSocket) -> None:
        self._inner = inner
        self._socket = sock
        # What is called for every request, without the way round by __getattr__.
        self.is_closing = inner.is_closing
        self.pause_reading, self.resume_reading = inner.pause_reading, inner.resume_reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, data: bytes) -> None:
        contact = self._socket.contact
        if contact.written:
            self._inner.write(data)
            return
        contact.written = True
        read_s = contact.start(self._socket)
        try:
            if isinstance(contact, Exchange):
                contact.request = data
                contact.heard_s = asyncio.get_running_loop().time()
            self._inner.write(data)
        finally:
            contact.passed(self._socket, read_s)
        if contact.refusal is not None:
            raise guard.RefusalError(contact.refusal)

    def writelines(self, chunks: Iterable[bytes]) -> None:
        self.write(b"".join(chunks))


def _unambiguous(head: bytes) -> tuple[bytes, bool]:
    """The head with one Content-Length where several say the same, none beside a Transfer-Encoding, no space before
    a colon.

    The parser refuses all three, though RFC 9112 sections 6.3 and 5.1 say what they mean. The flag: the length was told
    twice over.
    """
    return (head, False) if _is_plain(head) else _closely(head)


def _closely(head: bytes) -> tuple[bytes, bool]:
    head = SPACE_BEFORE_COLON.sub(rb"\1:", head)
    lengths = [value.strip() for line in CONTENT_LENGTH.findall(head) for value in line.split(b",")]
    if not lengths:
        return head, False
    if TRANSFER_ENCODING.search(head):
        return CONTENT_LENGTH.sub(b"", head), True
    if len(lengths) == 1 or not all(length.isdigit() and len(length) < 20 for length in lengths):
        return head, False
    if len({int(length) for length in lengths}) > 1:
        return head, False
    first = CONTENT_LENGTH.search(head)
    assert first is not None, "there are lengths"
    begin = head[: first.start()] + b"Content-Length: " + lengths[0] + b"\r\n"
    return begin + CONTENT_LENGTH.sub(b"", head[first.end() :]), False


def _usual(data: bytes) -> int:
    """Where the head ends of an answer that begins with `data` and its last status, as most do; 0: look closer."""
    if USUAL.match(data) is None:
        return 0
    end = _head_end(data)
    return end if end <= HEAD_BYTES_MAX else 0


def _is_plain(head: bytes) -> bool:
    """Whether nothing of that can be in a head, by a quick look: most have one length or none, and no odd spaces."""
    if b" :" in head or b"\t:" in head:
        return False
    small = head.lower()
    at = small.find(b"\ncontent-length:")
    if at < 0:
        return True
    end = small.find(b"\n", at + 1)
    return (
        b"," not in small[at:end] and b"\ncontent-length:" not in small[end:] and b"\ntransfer-encoding:" not in small
    )


def _head_end(window: bytes) -> int:
    """Where the first head in `window` ends; 0 if none does. Lines may end in a bare newline."""
    wide = window.find(b"\n\r\n")
    bare = window.find(b"\n\n", 0, len(window) if wide < 0 else wide + 1)
    if bare >= 0:
        return bare + 2
    return wide + 3 if wide >= 0 else 0
