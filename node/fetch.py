"""One conditional GET under the guard; every library exception becomes an Outcome.

It follows nothing, repeats nothing, keeps no cookies, and knows neither robots.txt nor the frontier.
Source: RFC 9110, RFC 9112; ARCHITECTURE.md, the guard (P1).
"""

import asyncio
import dataclasses
import ssl
from collections.abc import Iterator

import aiohttp
import yarl
from aiohttp import http_exceptions

from node import decode, dns, guard, wire
from shared import clock, config, errors, records, urls

HEADERS_MAX = 512
REDIRECTS = frozenset({300, 301, 302, 303, 307, 308})
RAW_SLACK_BYTES = 64 * 1024  # what a coding may cost beyond what it saves
DETAIL_CHARS_MAX = 200
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
    address: str | None = None
    """Numeric address that was asked."""
    tls_fault: str | None = None
    """What was wrong with the certificate, where that did not end the fetch."""


class Fetcher:
    """Fetches under permits, from one pool of connections."""

    def __init__(
        self,
        *,
        user_agent: str,
        limits: config.Limits,
        resolver: dns.Resolver,
        connections: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._user_agent = user_agent
        self._limits = limits
        self._resolver = resolver
        self._connections = connections
        self._tls = tls
        self._connector: wire.Connector | None = None
        self._session: aiohttp.ClientSession | None = None
        self._in_flight: set[wire.Exchange] = set()

    async def start(self) -> None:
        if not isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
            raise errors.ConfigError("the guard needs asyncio's own event loop: another one would not ask it")
        self._connector = wire.Connector(connections=self._connections, tls=self._tls)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            headers={"User-Agent": self._user_agent, "Accept": "*/*", "Accept-Encoding": decode.ACCEPTED},
            timeout=aiohttp.ClientTimeout(
                total=None,  # ours, because what came before it is kept
                sock_connect=self._limits.connect_s,
                sock_read=self._limits.first_byte_s,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=self._limits.header_bytes_max,
            max_field_size=self._limits.header_bytes_max,
            max_headers=HEADERS_MAX,
        )

    async def close(self) -> None:
        """Reset what is in flight and close the rest."""
        self.abort()
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()

    def abort(self, site: str | None = None) -> int:
        """Reset the in-flight connections of a site, or of all; how many. Idle ones go too, uncounted."""
        ended = [one for one in self._in_flight if site in (None, one.permit.site)]
        for exchange in ended:
            exchange.abort()
        if self._connector is not None:
            self._connector.drop_idle(site)
        return sum(exchange.sent for exchange in ended)

    async def fetch(
        self,
        url: str,
        *,
        permit: guard.Permit,
        etag: str | None = None,
        last_modified: str | None = None,
        bytes_max: int | None = None,
    ) -> Answer:
        """GET `url`, on condition that it changed where validators are given."""
        called_boot_s, called_wall_ms = permit.clock(), clock.wall_ms()
        exchange = wire.Exchange(permit)
        reply = _Reply(bytes_max or self._limits.body_bytes_max)
        token = guard.CONTACT.set(exchange)
        self._in_flight.add(exchange)
        try:
            outcome = await self._outcome(url, _conditions(etag, last_modified), exchange=exchange, reply=reply)
        except asyncio.CancelledError:
            exchange.reset()
            raise
        finally:
            self._in_flight.discard(exchange)
            exchange.scope = None  # an idle connection keeps its last exchange, not that one's task
            guard.CONTACT.reset(token)
        sent = exchange.started_boot_s is not None
        return Answer(
            outcome=outcome,
            sent=sent,
            start_boot_s=called_boot_s if exchange.started_boot_s is None else exchange.started_boot_s,
            start_wall_ms=exchange.started_wall_ms if sent else called_wall_ms,
            end_boot_s=permit.clock(),
            body_bytes=reply.received_bytes,
            content_type=reply.content_type,
        )

    async def _outcome(
        self, url: str, conditions: dict[str, str], *, exchange: wire.Exchange, reply: "_Reply"
    ) -> records.Outcome:
        failure: Exception | None = None
        try:
            async with asyncio.timeout(self._limits.total_s) as exchange.scope:
                await self._converse(
                    _wire_url(url), conditions, target=urls.path_of(url), exchange=exchange, reply=reply
                )
        except LIBRARY_ERRORS as error:
            exchange.reset()
            failure = error
        # What we did ourselves explains every error that followed from it.
        if exchange.aborted:
            return records.Failed(reason="aborted")
        if exchange.refusal is not None:
            return records.Failed(reason="guard", detail=exchange.refusal)
        if failure is None:
            return reply.outcome()
        if reply.headed:
            return reply.outcome(cut="time" if isinstance(failure, TimeoutError) else "connection")
        return _failed(failure, sent=exchange.sent)

    async def _converse(
        self, url: yarl.URL, conditions: dict[str, str], *, target: str, exchange: wire.Exchange, reply: "_Reply"
    ) -> None:
        assert self._session is not None, "start() comes first"
        assert self._connector is not None, "start() comes first"
        host, port = url.raw_host, url.port
        if url.scheme not in {"http", "https"} or not host or port is None:
            raise aiohttp.InvalidURL(url)
        exchange.address = await self._resolver.lookup(host, port)
        if url.raw_path_qs != target:
            exchange.target = target.encode()
        try:
            async with self._session.get(url, headers=conditions, allow_redirects=False) as response:
                handler = exchange.handler
                assert handler is not None, "an answer came over a connection"
                reply.begin(response)
                await reply.read(response)
                if handler.broken is not None:
                    raise handler.broken
        finally:
            if exchange.handler is None:
                self._resolver.failed(host, exchange.address)
            elif reply.may_trail:
                exchange.handler.close()
            elif not exchange.aborted:
                self._connector.keep(exchange.handler)


class _Reply:
    """One answer while it comes in."""

    def __init__(self, bytes_max: int) -> None:
        self.received_bytes = 0
        self._bytes_max = bytes_max
        self._status = 0
        self._headers: tuple[tuple[str, str], ...] = ()
        self._body = decode.Body((), bytes_max=bytes_max)

    @property
    def headed(self) -> bool:
        return self._status > 0

    @property
    def content_type(self) -> str | None:
        return next(self._values("content-type"), None)

    @property
    def may_trail(self) -> bool:
        """A body may follow where none belongs; on a kept connection it would be taken for the next answer."""
        return self._status in {204, 304} and any(text != "0" for text in self._values("content-length"))

    def begin(self, response: aiohttp.ClientResponse) -> None:
        self._headers = tuple((_text(name), _text(value)) for name, value in response.raw_headers)
        self._status = response.status
        codings = _words(self._values("content-encoding"))
        # Transfer codings lie on top of content codings; aiohttp undoes chunked and passes the others on.
        codings += [word for word in _words(self._values("transfer-encoding")) if word != "chunked"]
        self._body = decode.Body(codings, bytes_max=self._bytes_max)

    async def read(self, response: aiohttp.ClientResponse) -> None:
        if self._status == 304 or (self._status in REDIRECTS and any(self._values("location"))):
            return
        async for chunk in response.content.iter_any():
            self.received_bytes += len(chunk)
            self._body.feed(chunk)
            if self._body.fault is None and self.received_bytes > self._bytes_max + RAW_SLACK_BYTES:
                self._body.fault = "size"
            if self._body.fault is not None:
                response.close()
                return

    def outcome(self, cut: str | None = None) -> records.Outcome:
        if self._status == 304:
            return records.NotModified(headers=self._headers)
        locations = set(filter(None, self._values("location")))
        if self._status in REDIRECTS and locations:
            if len(locations) > 1:
                return records.Failed(reason="headers", detail="Location values differ")
            return records.Redirected(status=self._status, location=locations.pop(), headers=self._headers)
        if cut is None:
            self._body.finish()
        return records.Fetched(
            status=self._status,
            headers=self._headers,
            body=self._body.data,
            truncated=self._body.fault or cut,
        )

    def _values(self, name: str) -> Iterator[str]:
        return (value for header, value in self._headers if header.lower() == name)


def _wire_url(url: str) -> yarl.URL:
    """`url` to be sent byte for byte: whatever would not survive that is no canonical URL."""
    if not url.isascii() or not url.isprintable() or " " in url:
        raise aiohttp.InvalidURL(url)
    return yarl.URL(url, encoded=True)


def _conditions(etag: str | None, last_modified: str | None) -> dict[str, str]:
    """Both validators as conditions; one that cannot stand in a header was never a validator."""
    asked = {"If-None-Match": etag, "If-Modified-Since": last_modified}
    return {name: value for name, value in asked.items() if value and value.isascii() and value.isprintable()}


def _failed(error: Exception, *, sent: bool) -> records.Outcome:
    detail = " ".join(f"{type(error).__name__}: {error}".split())[:DETAIL_CHARS_MAX]
    match error:
        case dns.ForbiddenError():
            return records.Refused(reason=str(error))
        case dns.UnresolvedError():
            return records.Failed(reason="dns", detail=str(error)[:DETAIL_CHARS_MAX])
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            reason = "tls"
        case TimeoutError():
            reason = "timeout"
        case aiohttp.ClientConnectorError():
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


def _words(values: Iterator[str]) -> list[str]:
    return [word.strip().lower() for value in values for word in value.split(",") if word.strip()]


def _text(raw: bytes) -> str:
    """Header bytes as text: UTF-8 where they are, else each byte a character (RFC 9110 section 5.5)."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
