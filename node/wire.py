"""aiohttp's connections under the guard: which socket, which address, one request a fetch, what is kept open.

It also keeps what went out and what came in as bytes, since aiohttp only hands on what it made of them. It is the
only file that knows aiohttp's inner parts (`TCPConnector._factory`, `_get` and `_resolve_host`,
`ResponseHandler.data_received`); the tests pin each use. Nothing here judges: `node.guard` does.
"""

import asyncio
import collections
import functools
import re
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import aiohttp
from aiohttp import abc, client_proto, helpers, http_exceptions

from node import dns, guard

KEEP_ALIVE_S = 15.0  # the usual delay of a site comes round within it; few servers wait longer
HEAD_BYTES_MAX = 1024 * 1024  # all header lines of one answer together: memory, not manners
INTERIMS_MAX = 512  # 1xx answers and empty lines before the answer itself: each costs a pass over what came with it
INTERIM = re.compile(rb"\s*(?:HTTP/\d\.\d 1\d\d|$)")  # a head that another follows: 1xx, or an empty line
FIRST_LINE_BYTES = 16
PROTOCOL = b"HTTP/"
CONTENT_LENGTH = re.compile(rb"^content-length[ \t]*:([^\r\n]*)\r?\n", re.IGNORECASE | re.MULTILINE)
SPACE_BEFORE_COLON = re.compile(rb"^([!#$%&'*+.^_`|~0-9A-Za-z-]++)[ \t]++:", re.MULTILINE)
TRANSFER_ENCODING = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)
Judge = Callable[[ssl.SSLObject], str | None]
REQUEST_TARGET = re.compile(rb"\AGET [^ ]* HTTP/")


class Exchange(guard.Contact):
    """One fetch: the guard's contact, with the address it goes to and the connection it got."""

    def __init__(self, permit: guard.Permit) -> None:
        super().__init__(permit)
        self.address: dns.Address | None = None
        self.handler: Handler | None = None
        self.scope: asyncio.Timeout | None = None
        self._end_s: float | None = None
        self.aborted = False
        self.wait_s = 0.0
        """Until this fetch may be tried again, where it was not its turn."""
        self.target = b""
        """Path and query to ask for, where the URL library would say something else; empty: as it says."""
        self.request = b""
        """The request's head as it was written; empty until then."""
        self.head = b""
        """The answer's head as it came; of interim answers nothing is kept."""

    def expect(self, within_s: float | None) -> None:
        """Until the next call, end sooner than the whole fetch would; None: at the end of the whole."""
        if self.scope is None or self.aborted:
            return
        if self._end_s is None:
            self._end_s = self.scope.when()
        now_s = asyncio.get_running_loop().time()
        ends = [end_s for end_s in (self._end_s, None if within_s is None else now_s + within_s) if end_s is not None]
        self.scope.reschedule(min(ends, default=None))

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
        if self.scope is not None and not self.scope.expired():
            self.scope.reschedule(asyncio.get_running_loop().time())


class Connector(aiohttp.TCPConnector):
    """Opens guarded sockets to the address its exchange names, and lets each exchange ask once."""

    def __init__(self, *, connections: int, tls: ssl.SSLContext | None, judge: Judge | None = None) -> None:
        """`judge` says what is wrong with a certificate, where `tls` lets every one pass."""
        super().__init__(
            limit=connections,
            keepalive_timeout=KEEP_ALIVE_S,
            happy_eyeballs_delay=None,
            socket_factory=guard.open_socket,
            use_dns_cache=False,
            resolver=aiohttp.ThreadedResolver(),  # never asked; the default would open a resolver of its own
            ssl=tls if tls is not None else True,
        )
        self.idle: collections.OrderedDict[Handler, None] = collections.OrderedDict()
        self._idle_max = 4 * connections
        loop = asyncio.get_running_loop()
        self._factory = cast(
            "functools.partial[client_proto.ResponseHandler]", functools.partial(Handler, loop, self.idle, judge)
        )

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        exchange = current()
        if exchange.begun:
            # aiohttp sends an idempotent request again when the server hangs up; a second request is a second
            # contact without a delay (P1).
            raise aiohttp.ClientConnectionError("hung up without an answer, and one fetch is one request")
        exchange.begun = True
        connection = await super().connect(req, traces, timeout)
        cast("Handler", connection.protocol).begin(exchange)
        return connection

    async def _get(self, key: Any, traces: list[Any]) -> aiohttp.connector.Connection | None:
        """An idle connection, if it leads to the address that was judged for this exchange."""
        address = current().address
        while (connection := await super()._get(key, traces)) is not None:
            handler = cast("Handler", connection.protocol)
            if handler.address == address and not handler.should_close:
                return connection
            connection.close()
        return None

    async def _resolve_host(self, host: str, port: int, traces: Sequence[Any] | None = None) -> list[abc.ResolveResult]:
        del port, traces
        address = current().address
        assert address is not None, "an exchange connects after its look-up"
        return [abc.ResolveResult(hostname=host, host=address.ip, port=address.port, family=0, proto=0, flags=0)]

    def keep(self, handler: "Handler") -> None:
        """A connection went back to the pool; beyond a bound the one that has waited longest is closed."""
        if handler.is_connected() and not handler.should_close:
            self.idle[handler] = None
        while len(self.idle) > self._idle_max:
            self.idle.popitem(last=False)[0].close()

    def drop_idle(self, site: str | None) -> None:
        """Close what waits in the pool for a site, or for all."""
        for handler in [one for one in self.idle if site in (None, one.socket.contact.permit.site)]:
            del self.idle[handler]
            handler.socket.reset_on_close()
            handler.abort()


class Handler(client_proto.ResponseHandler):
    """aiohttp's protocol, with its transport under the guard and its input cut where heads end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        idle: "collections.OrderedDict[Handler, None]",
        judge: Judge | None,
    ) -> None:
        super().__init__(loop)
        sock, self.address = current().socket, current().address
        assert sock is not None, "the socket is made before its protocol"
        self.socket = sock
        self.tls_fault: str | None = None
        """What is wrong with the server's certificate, where that is told and not refused."""
        self._judge = judge
        self.broken: BaseException | None = None
        """Why the body in hand ends before its end."""
        self._idle = idle
        self._used = self._headed = False
        self._head_bytes = self._interims = 0
        self._first_line = b""
        self._seam = b""
        self._held = bytearray()
        self.ambiguous = False
        """The last answer's head told its length in two ways: nobody knows what follows it (RFC 9112 section 6.3)."""

    def begin(self, exchange: Exchange) -> None:
        """The connection serves this exchange from now on, and asks its permit."""
        self._idle.pop(self, None)
        self._used = self.socket.contact is not exchange
        self.socket.contact = exchange
        exchange.socket, exchange.handler = self.socket, self
        self.broken = None
        self._headed, self._head_bytes, self._interims, self._first_line, self._seam = False, 0, 0, b"", b""
        self._held, self.ambiguous = bytearray(), False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        guarded = GuardedTransport(cast("asyncio.Transport", transport), self.socket)
        super().connection_made(cast("asyncio.Transport", guarded))
        secured = transport.get_extra_info("ssl_object")
        if self._judge is not None and secured is not None:
            self.tls_fault = self._judge(secured)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._idle.pop(self, None)
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
            self._idle.pop(self, None)
            self.force_close()
            self.abort()
            return
        if self._headed or not data:
            super().data_received(data)
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
        return self not in self._idle and (self.socket.contact.written or not self._used)

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
            contact = self.socket.contact
            if self._headed and isinstance(contact, Exchange):
                contact.head = head
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, data: bytes) -> None:
        contact = self._socket.contact
        if contact.written:
            self._inner.write(data)
            return
        contact.written = True
        if isinstance(contact, Exchange) and contact.target:
            data = REQUEST_TARGET.sub(lambda _: b"GET %s HTTP/" % contact.target, data, count=1)
        with contact.start(self._socket):
            if isinstance(contact, Exchange):
                contact.request = bytes(data)
            self._inner.write(data)
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


def _head_end(window: bytes) -> int:
    """Where the first head in `window` ends; 0 if none does. Lines may end in a bare newline."""
    wide = window.find(b"\n\r\n")
    bare = window.find(b"\n\n", 0, len(window) if wide < 0 else wide + 1)
    if bare >= 0:
        return bare + 2
    return wide + 3 if wide >= 0 else 0


def current() -> Exchange:
    """The exchange of the running fetch."""
    return cast("Exchange", guard.CONTACT.get())
