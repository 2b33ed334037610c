"""One conditional GET under the guard; every library exception becomes an Outcome.

It follows nothing, repeats nothing, keeps no cookies, and knows neither robots.txt nor the frontier.
Source: RFC 9110, RFC 9112; ARCHITECTURE.md, the guard (P1).
"""

import asyncio
import dataclasses
import io
import re
import ssl
from collections.abc import Callable, Iterator
from typing import Literal

import aiohttp
import yarl
from aiohttp import http_exceptions

from node import addresses, certificates, decode, dns, guard, wire
from shared import clock, config, errors, records, urls

HEADERS_MAX = 512
REDIRECTS = frozenset({300, 301, 302, 303, 307, 308})
TARGETED = REDIRECTS - {300}  # without a Location these mean nothing; 300 may be a page of choices
RAW_SLACK_BYTES = 64 * 1024  # what a coding may cost beyond what it saves
REDIRECT_BYTES_MAX = 64 * 1024  # of a redirect's body, which is read for the archive alone
REDIRECT_BODY_S = 5.0
BUSY_S = 5.0  # until a fetch is worth another try whose look-up found no turn
DETAIL_CHARS_MAX = 200
SCHEME = re.compile(r"[\x00-\x20]*([A-Za-z][A-Za-z0-9+.-]*):")
LISTED = re.compile(r"""(?:[^,"]++|"(?:[^"\\]|\\.)*+"?+)++""")  # what commas part, but for those in quotes
MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]++/[!#$%&'*+.^_`|~0-9A-Za-z-]++(?=[\s;]|\Z)")
WHOLE_RANGE = re.compile(r"\s*bytes\s+0-([0-9]{1,15})/([0-9]{1,15})\s*", re.IGNORECASE)
TABS_AND_LINE_ENDS = re.compile(r"[\t\r\n]")  # the URL standard drops them wherever they stand
HIGH_BYTES = re.compile(rb"[\x80-\xff]")
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
        connections: int,
        tls: ssl.SSLContext | None = None,
        tls_faults: Literal["refuse", "record"] = "refuse",
        crowd: addresses.Addresses | None = None,
    ) -> None:
        """`tls` holds the authorities to trust, by default the machine's; `crowd` the limit of each address."""
        self._user_agent = user_agent
        self._limits = limits
        self._resolver = resolver
        self._connections = connections
        self._tls = tls
        self._tls_faults = tls_faults
        self._crowd = None if resolver.fixed else crowd
        self._connector: wire.Connector | None = None
        self._session: aiohttp.ClientSession | None = None
        self._in_flight: set[wire.Exchange] = set()

    async def start(self) -> None:
        if not isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
            raise errors.ConfigError("the guard needs asyncio's own event loop: another one would not ask it")
        judge = certificates.Judge(self._tls) if self._tls_faults == "record" else None
        self._connector = wire.Connector(
            connections=self._connections,
            tls=self._tls if judge is None else certificates.unverified(self._tls),
            judge=judge,
        )
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
        wanted: Callable[[str | None], bool] | None = None,
    ) -> Answer:
        """GET `url`, on condition that it changed where validators are given.

        `wanted` judges the Content-Type of an answer that has a page's body; what it refuses ends after the head.
        """
        called_boot_s, called_wall_ms = permit.clock(), clock.wall_ms()
        exchange = wire.Exchange(permit)
        reply = _Reply(bytes_max or self._limits.body_bytes_max, wanted)
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
        sent, handler = exchange.started_boot_s is not None, exchange.handler
        head, exchange.head = exchange.head, b""  # an idle connection keeps its last exchange
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
        if isinstance(failure, _CrowdedError):
            return records.Failed(reason="crowded", detail=str(failure))
        if failure is None or (reply.headed and reply.switched):
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
        exchange.address = await self._find(host, port, exchange)
        if url.raw_path_qs != target:
            exchange.target = target.encode()
        # A head that drips never meets the limit between two reads.
        exchange.expect(self._limits.connect_s + self._limits.first_byte_s)
        try:
            async with self._session.get(url, headers=conditions, allow_redirects=False) as response:
                handler = exchange.handler
                assert handler is not None, "an answer came over a connection"
                reply.begin(response)
                exchange.expect(REDIRECT_BODY_S if reply.redirects else None)
                await reply.read(response)
                if handler.broken is not None:
                    raise handler.broken
        finally:
            if exchange.handler is None:
                self._resolver.failed(host, exchange.address)
            elif reply.may_trail or exchange.handler.ambiguous:
                exchange.handler.close()
            elif not exchange.aborted:
                self._connector.keep(exchange.handler)

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


class _Reply:
    """One answer while it comes in."""

    def __init__(self, bytes_max: int, wanted: Callable[[str | None], bool] | None) -> None:
        self.received_bytes = 0
        self.cut: str | None = None
        """Why what was received is not all."""
        self._wanted = wanted
        self._raw = io.BytesIO()
        self._transfer: list[str] = []
        self._coded = False
        self._locations: set[str] = set()
        self._bytes_max = bytes_max
        self._begun = False
        self._status = 0
        self._headers: tuple[tuple[str, str], ...] = ()
        self._body = decode.Body((), bytes_max=bytes_max)

    @property
    def headed(self) -> bool:
        return self._begun

    @property
    def content_type(self) -> str | None:
        return _media_type([*self._values("content-type")])

    @property
    def switched(self) -> bool:
        """An interim status as the last word (101: the server speaks another protocol from here on), or none at all."""
        return self._status < 200

    @property
    def redirects(self) -> bool:
        return self._status in TARGETED or (self._status == 300 and bool(self._locations))

    @property
    def may_trail(self) -> bool:
        """A body may follow where none belongs; on a kept connection it would be taken for the next answer."""
        return self._status in {204, 304} and any(text != "0" for text in self._values("content-length"))

    def begin(self, response: aiohttp.ClientResponse) -> None:
        self._headers = tuple((_text(name), _text(value)) for name, value in response.raw_headers)
        self._locations = {
            _location(value) for name, value in response.raw_headers if name.lower() == b"location" and value.strip()
        }
        self._begun, self._status = True, response.status
        codings = _words(self._values("content-encoding"))
        # Transfer codings lie on top of content codings; aiohttp undoes chunked and passes the others on.
        transfer = _words(self._values("transfer-encoding"))
        self._transfer = [word for word in transfer if word != "chunked"]
        self._coded = bool(codings or self._transfer)
        self._body = decode.Body(codings + self._transfer, bytes_max=self._bytes_max)
        if self._transfer and "chunked" in transfer[: transfer.index(self._transfer[-1])]:
            self._body.fault = "encoding"  # chunks inside another coding: nobody undoes that

    async def read(self, response: aiohttp.ClientResponse) -> None:
        if self._status == 304:
            return
        raw_max = self._bytes_max + RAW_SLACK_BYTES * self._coded
        if self.redirects:
            raw_max = min(raw_max, REDIRECT_BYTES_MAX)
        elif self._wanted is not None and not self._wanted(self.content_type):
            self.cut = "type"
            response.close()
            return
        async for chunk in response.content.iter_any():
            self.received_bytes += len(chunk)
            room = raw_max - self._raw.tell()
            self._raw.write(chunk[:room])
            if self._coded:
                self._body.feed(chunk)
            # What no coding explains is read on all the same: an archive wants the bytes.
            if len(chunk) > room or self._body.fault == "size":
                self.cut = "size"
                response.close()
                return

    def raw(self) -> bytes:
        """What was received, without its transfer coding."""
        raw = self._raw.getvalue()
        if not self._transfer:
            return raw
        body = decode.Body(self._transfer, bytes_max=self._bytes_max + RAW_SLACK_BYTES)
        body.feed(raw)
        body.finish()
        if body.fault == "size":
            self.cut = self.cut or "size"
        return body.data

    def outcome(self, cut: str | None = None) -> records.Outcome:
        """What the answer came to; `cut` is what ended it before its end."""
        self.cut = self.cut or cut
        if self.switched:
            return records.Failed(reason="protocol", detail=f"status {self._status} as an answer")
        if self._status == 304:
            return records.NotModified(headers=self._headers)
        if self.redirects:
            # Two that differ are none: neither is to be believed (a split response shows up so).
            location = next(iter(self._locations)) if len(self._locations) == 1 else ""
            return records.Redirected(status=self._status, location=location, headers=self._headers)
        truncated = self._body.fault or self.cut
        if truncated is None and self._status == 206 and not any(map(_is_whole, self._values("content-range"))):
            truncated = "range"  # nobody asked for a part
        self._body.finish()  # what a decoder holds back is wanted of a torn body, too
        return records.Fetched(
            status=self._status,
            headers=self._headers,
            body=self._decoded(),
            truncated=truncated or self._body.fault,
            decoding=self._body.note,
        )

    def _decoded(self) -> bytes:
        raw = self._raw.getvalue()
        if not self._coded:
            return raw
        body = self._body.data
        return raw if body == raw else body  # one copy in memory where the label was wrong

    def _values(self, name: str) -> Iterator[str]:
        return (value for header, value in self._headers if header.lower() == name)


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
            reason = certificates.reason_of(error)
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


def _is_whole(content_range: str) -> bool:
    """Whether a Content-Range is all there is: `bytes 0-99/100`."""
    found = WHOLE_RANGE.fullmatch(content_range)
    return found is not None and int(found[1]) + 1 == int(found[2])


def _media_type(values: list[str]) -> str | None:
    """The Content-Type that counts where there are several, in lines or by commas: the last that is one.

    Source: the fetch standard, "extract a MIME type"; a charset is handed on from one to the next of the same type.
    """
    listed = [one.strip() for value in values for one in LISTED.findall(value)]
    found = None
    for one in listed:
        essence = MEDIA_TYPE.match(one)
        if essence is None or essence[0] == "*/*":
            continue
        same = found is not None and found.lower().startswith(essence[0].lower())
        if not (same and ";" not in one):
            found = one
    return found or next(iter(values), None)


def _location(raw: bytes) -> str:
    """A Location as text: UTF-8 where it is, else each high byte escaped as it stands, which is what was meant."""
    try:
        return raw.decode().strip()
    except UnicodeDecodeError:
        return HIGH_BYTES.sub(lambda found: b"%%%02X" % found[0][0], raw).decode().strip()


def _text(raw: bytes) -> str:
    """Header bytes as text: UTF-8 where they are, else each byte a character (RFC 9110 section 5.5)."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
