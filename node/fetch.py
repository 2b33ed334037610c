"""One conditional GET under the guard; every library exception becomes an Outcome.

It follows nothing, repeats nothing, keeps no cookies, and knows neither robots.txt nor the frontier.
Source: RFC 9110, RFC 9112; ARCHITECTURE.md, the guard (P1).
"""

import asyncio
import dataclasses
import functools
import math
import re
import ssl
from collections.abc import Callable
from typing import Literal, NamedTuple

import aiohttp
import yarl
from aiohttp import http_exceptions

from node import addresses, decode, dns, guard, wire
from node import connections as pool
from node import reply as answers
from node import tls as tls_words
from shared import clock, config, errors, records, urls

HEADERS_MAX = 512
REDIRECT_BODY_S = 5.0
BUSY_S = 5.0  # until a fetch is worth another try whose look-up found no turn
DETAIL_CHARS_MAX = 200
ORIGINS_KEPT = 4_096  # whose first lines are kept ready, some 500 bytes each
SCHEME = re.compile(r"[\x00-\x20]*([A-Za-z][A-Za-z0-9+.-]*):")
TABS_AND_LINE_ENDS = re.compile(r"[\t\r\n]")  # the URL standard drops them wherever they stand
LIBRARY_ERRORS = (
    aiohttp.ClientError,
    http_exceptions.HttpProcessingError,
    OSError,  # TimeoutError and ssl.SSLError are OSErrors
    ValueError,  # yarl, idna, header values, ssl.CertificateError
    RuntimeError,  # a transport or session that is being closed
    EOFError,
    aiohttp.EofStream,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What one fetch came to, and when."""

    outcome: records.Outcome
    sent: bool
    """A connect or a request write was let through the guard: it counts as a request of the site."""
    start_boot_s: float
    """Of the first thing let through; where nothing was, of the call."""
    start_wall_ms: int
    end_boot_s: float
    body_bytes: int
    """As received, before decoding."""
    content_type: str | None
    request: bytes = b""
    """Its head as it went out."""
    head: bytes = b""
    """Status line and headers of the answer as they came, up to and with the empty line."""
    raw: bytes = b""
    """The body with its transfer coding removed and its content coding kept, as far as it was read."""
    raw_cut: str | None = None
    """Why `raw` is not all of the body: size, time, connection, type; None: it is."""
    address: str | None = None
    """Numeric address that was asked."""
    tls_fault: str | None = None
    """What was wrong with the certificate, where that did not end the fetch: tls_expired, tls_self_signed,
    tls_wrong_host, tls_untrusted."""
    wait_s: float = 0.0
    """Of `Failed(crowded)`: from the end of this call until the fetch may be tried again."""


class Fetcher:
    """Fetches under permits, from one pool of connections."""

    def __init__(
        self,
        *,
        user_agent: str,
        limits: config.Limits,
        resolver: dns.Resolver,
        idle_max: int,
        tls: ssl.SSLContext | None = None,
        tls_faults: Literal["refuse", "record"] = "refuse",
        crowd: addresses.Addresses | None = None,
    ) -> None:
        """`idle_max` connections are kept, `tls` holds the authorities to trust, by default the machine's, `crowd` the
        limit of each address.
        """
        self._limits = limits
        self._resolver = resolver
        self._idle_max = idle_max
        self._tls = tls
        self._tls_faults = tls_faults
        self._crowd = None if resolver.fixed else crowd
        self._connections: pool.Connections | None = None
        self._deadlines = wire.Deadlines()
        fields = {"User-Agent": user_agent, "Accept": "*/*", "Accept-Encoding": decode.ACCEPTED}
        self._asker = functools.lru_cache(ORIGINS_KEPT)(functools.partial(_asked, fields=_fields(fields)))

    async def start(self) -> None:
        if not isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
            raise errors.ConfigError("the guard needs asyncio's own event loop: another one would not ask it")
        judge = None
        if self._tls_faults == "record":
            from node import certificates  # noqa: PLC0415 - 16 MB

            judge = certificates.Judge(self._tls)
        self._connections = pool.Connections(
            idle_max=self._idle_max,
            tls=self._tls if judge is None else tls_words.unverified(self._tls),
            judge=judge,
        )

    async def close(self) -> None:
        """Reset what is in flight and close the rest."""
        self.abort()
        if self._connections is not None:
            await self._connections.close()
        self._deadlines.close()
        await self._resolver.close()

    def abort(self, site: str | None = None) -> int:
        """Reset the in-flight connections of a site, or of all; how many. Idle ones go too, uncounted."""
        ended = [one for one in self._deadlines.open if site in (None, one.permit.site)]
        for exchange in ended:
            exchange.abort()
        if self._connections is not None:
            self._connections.drop(site)
        return sum(exchange.sent for exchange in ended)

    async def fetch(
        self,
        url: str,
        *,
        permit: guard.Permit,
        etag: str | None = None,
        last_modified: str | None = None,
        bytes_max: int | None = None,
        wanted: Callable[[str | None], bool] | None = None,
    ) -> Answer:
        """GET `url`, on condition that it changed where validators are given.

        `wanted` judges the Content-Type of an answer that has a page's body; what it refuses ends after the head.
        """
        called_boot_s, called_wall_ms = permit.clock(), clock.wall_ms()
        exchange = wire.Exchange(permit)
        reply = answers.Reply(bytes_max or self._limits.body_bytes_max, wanted)
        self._deadlines.open.add(exchange)
        try:
            outcome = await self._outcome(url, _conditions(etag, last_modified), exchange=exchange, reply=reply)
        except asyncio.CancelledError:
            exchange.reset()
            raise
        finally:
            self._deadlines.open.discard(exchange)
            exchange.scope = None
        sent, handler = exchange.started_boot_s is not None, exchange.handler
        # An idle connection keeps its last exchange.
        head, exchange.head, exchange.handler = exchange.head, b"", None
        return Answer(
            outcome=outcome,
            sent=sent,
            start_boot_s=called_boot_s if exchange.started_boot_s is None else exchange.started_boot_s,
            start_wall_ms=exchange.started_wall_ms if sent else called_wall_ms,
            end_boot_s=permit.clock(),
            body_bytes=reply.received_bytes,
            content_type=reply.content_type,
            request=exchange.request,
            head=head.lstrip(b"\r\n") if reply.headed else b"",
            raw=reply.raw(),
            raw_cut=reply.cut,
            address=exchange.address.ip if sent and exchange.address is not None else None,
            tls_fault=handler.tls_fault if handler is not None else None,
            wait_s=exchange.wait_s,
        )

    async def _outcome(
        self, url: str, conditions: bytes, *, exchange: wire.Exchange, reply: answers.Reply
    ) -> records.Outcome:
        failure: Exception | None = None
        try:
            async with asyncio.timeout(None) as exchange.scope:
                self._end(exchange, whole_s=self._limits.total_s)
                await self._converse(url, conditions, exchange=exchange, reply=reply)
        except LIBRARY_ERRORS as error:
            exchange.reset()
            failure = error
        # What we did ourselves explains every error that followed from it.
        if exchange.aborted:
            return records.Failed(reason="aborted")
        if exchange.refusal is not None:
            return records.Failed(reason="guard", detail=exchange.refusal)
        if isinstance(failure, _CrowdedError):
            return records.Failed(reason="crowded", detail=str(failure))
        if failure is None or (reply.headed and reply.switched):
            return reply.outcome()
        if reply.headed:
            return reply.outcome(cut="time" if isinstance(failure, TimeoutError) else "connection")
        return _failed(failure, sent=exchange.sent)

    async def _converse(self, url: str, conditions: bytes, *, exchange: wire.Exchange, reply: answers.Reply) -> None:
        assert self._connections is not None, "start() comes first"
        if not url.isascii() or not url.isprintable() or " " in url:
            raise aiohttp.InvalidURL(url)  # sent byte for byte: what would not survive that is no canonical URL
        begins = url.index("/", 8)
        place, fields = self._asker(url[:begins])
        exchange.address = await self._find(place.host, place.port, exchange)
        handler = None
        try:
            self._end(exchange, step_s=self._limits.connect_s)
            handler = await self._connections.open(exchange, place)
            # A head that drips never meets the limit between two reads.
            self._end(exchange, step_s=self._limits.connect_s + self._limits.first_byte_s)
            handler.ask(
                b"GET %s HTTP/1.1\r\n%s%s\r\n" % (url[begins:].encode(), fields, conditions),
                line_max=self._limits.header_bytes_max,
                headers_max=HEADERS_MAX,
            )
            exchange.quiet_s = self._limits.first_byte_s
            self._deadlines.look_by(exchange.ends_s())
            status, found, body = await handler.answer()
            reply.begin(status, found)
            self._end(exchange, step_s=REDIRECT_BODY_S if reply.redirects else None)
            await reply.read(body, handler)
            if handler.broken is not None:
                raise handler.broken
        finally:
            if handler is None:
                self._resolver.failed(place.host, exchange.address)
            elif reply.may_trail or handler.ambiguous:
                handler.close()
            elif not exchange.aborted:
                self._connections.keep(handler)

    def _end(self, exchange: wire.Exchange, *, whole_s: float | None = None, step_s: float | None = None) -> None:
        """The exchange, or the step that it is at from now on, is to end in so many seconds."""
        now_s = asyncio.get_running_loop().time()
        if whole_s is not None:
            exchange.end_s = now_s + whole_s
        exchange.step_end_s = math.inf if step_s is None else now_s + step_s
        self._deadlines.look_by(exchange.ends_s())

    async def _find(self, host: str, port: int, exchange: wire.Exchange) -> dns.Address:
        """Where this fetch goes, at the moment it may; raises _CrowdedError where that is not now."""
        try:
            address = await self._resolver.lookup(host, port)
        except dns.BusyError as error:
            exchange.wait_s = BUSY_S
            raise _CrowdedError("look-ups") from error
        if self._crowd is None:
            return address
        permit = exchange.permit
        # The site is what comes back for its slot, with whichever of its URLs is first then.
        moment_s = self._crowd.take(address.ip, permit.site, permit.clock())
        wait_s = moment_s - permit.clock()
        if wait_s > addresses.PATIENCE_S:
            exchange.wait_s = wait_s
            raise _CrowdedError(address.ip)
        while (wait_s := moment_s - permit.clock()) > 0:
            await asyncio.sleep(wait_s)
        return address


class _CrowdedError(OSError):
    """Nothing is wrong, and it is not the turn of this fetch; the text says at what."""


def redirect_target(url: str, location: str) -> tuple[str | None, str | None]:
    """Where the answer of `url` points, as a canonical URL, or None and why nowhere.

    The reasons: `bad_redirect` (no Location, two that differ, or one that is no URL) and
    `redirect_to_unsupported_scheme`. Source: the URL standard's parser; the fetch standard's "location URL".
    """
    if not location.strip():
        return None, "bad_redirect"
    try:
        return urls.canonical(location, url), None
    except errors.InvalidUrl:
        scheme = SCHEME.match(TABS_AND_LINE_ENDS.sub("", location))
    if scheme is None or scheme[1].lower() in {"http", "https"}:
        return None, "bad_redirect"
    return None, "redirect_to_unsupported_scheme"


class _Asked(NamedTuple):
    """What all requests of an origin have in common."""

    place: wire.Place
    fields: bytes


def _asked(origin: str, *, fields: bytes) -> _Asked:
    """Raises ValueError for what is no origin of HTTP."""
    url = yarl.URL(origin, encoded=True)
    host, port = url.raw_host, url.port
    if url.scheme not in {"http", "https"} or not host or port is None:
        raise aiohttp.InvalidURL(url)
    named = _fields({"Host": url.host_port_subcomponent or host})
    return _Asked(wire.Place(url.scheme == "https", host, port), named + fields)


def _fields(said: dict[str, str]) -> bytes:
    """Header lines; raises ValueError for what cannot stand in one."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    if any(not value.isprintable() for value in said.values()):
        raise ValueError("a header value with a control character")
    return lines.encode()


def _conditions(etag: str | None, last_modified: str | None) -> bytes:
    """Both validators as conditions; one that cannot stand in a header was never a validator."""
    if not etag and not last_modified:
        return b""
    asked = {"If-None-Match": etag, "If-Modified-Since": last_modified}
    return _fields({name: value for name, value in asked.items() if value and value.isascii() and value.isprintable()})


def _failed(error: Exception, *, sent: bool) -> records.Outcome:
    detail = " ".join(f"{type(error).__name__}: {error}".split())[:DETAIL_CHARS_MAX]
    match error:
        case dns.ForbiddenError():
            return records.Refused(reason=str(error))
        case dns.UnresolvedError():
            return records.Failed(reason="dns", detail=str(error)[:DETAIL_CHARS_MAX])
        case ssl.SSLError():
            reason = tls_words.reason_of(error)
        case TimeoutError():
            reason = "timeout"
        case pool.ConnectError():
            reason = "connect"
        case aiohttp.ClientResponseError() | http_exceptions.HttpProcessingError():
            reason = "headers" if "Got more than" in detail or "Too many headers" in detail else "protocol"
        case ValueError() if not sent:
            return records.Refused(reason="url")
        case aiohttp.ClientConnectionError() | OSError() | EOFError():
            reason = "disconnected"
        case _:
            reason = "protocol"
    return records.Failed(reason=reason, detail=detail)
