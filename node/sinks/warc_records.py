"""One request as WARC 1.1 records, each a gzip member: response or revisit, request, metadata; knows no files.

The bytes are the origin's own: what goes into a block is never parsed and written anew, so that 8-bit and malformed
header lines stay as they came. Only where a head does not agree with the body that was kept (chunked coding is
already removed, a body was cut) its length and coding lines are renamed `X-Archive-Orig-...` and a true length is
written. Source: WARC 1.1 (ISO 28500:2017), sections 5 and 6; the names in metadata are Heritrix' and Common Crawl's.
"""

import datetime as dt
import io
import re
import zlib
from collections.abc import Iterator
from typing import Final

from warcio import statusandheaders, warcwriter

from node import revisit
from node.sinks import pages
from shared import records

GZIP_LEVEL: Final = 6  # 9 takes a third more time and saves one part in five hundred of a page
GZIP: Final = 16 + zlib.MAX_WBITS
PROFILES: Final = "http://netpreserve.org/warc/1.1/revisit/"
CONFORMS_TO: Final = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
ORIGINAL: Final = b"X-Archive-Orig-"

_CUT: Final = {"size": "length", "time": "time", "rate": "time", "connection": "disconnect"}
_FAILED: Final = {"timeout": "time", "disconnected": "disconnect"}
_NAMED = re.compile(rb"(content-length|transfer-encoding)[ \t]*:[ \t]*(.*)", re.IGNORECASE | re.DOTALL)
_NO_BODY: Final = frozenset({204, 304})

Field = tuple[str, str]


class Head(statusandheaders.StatusAndHeaders):  # type: ignore[misc]  # the library has no types
    """A head that is written byte for byte where the library would write what it had understood of it."""

    def __init__(self, raw: bytes) -> None:
        super().__init__("as it came", [])
        self._raw = raw

    def compute_headers_buffer(self, header_filter: object = None) -> None:
        """What the library calls before it writes; nothing is filtered."""
        del header_filter
        self.headers_buff = self._raw


def members(page: pages.Visited) -> bytes:
    """All records of one request; nothing where no answer's head came."""
    answer = page.answer
    if not answer.head:
        return b""
    kind, fields, body = _response(page)
    same = [("WARC-Date", date(answer.start_wall_ms))]
    if answer.address:
        same.append(("WARC-IP-Address", answer.address.partition("%")[0]))
    identity = statusandheaders.StatusAndHeadersParser.make_warc_id()
    head = agreeing(answer.head, None if isinstance(answer.outcome, records.NotModified) else answer.raw)
    found = [_member(kind, page.url, [("WARC-Record-ID", identity), *same, *fields], head=head, block=body)]
    beside = [*same, ("WARC-Concurrent-To", identity)]
    if answer.request:
        found.append(_member("request", page.url, beside, head=ended(answer.request)))
    found.append(_member("metadata", page.url, beside, block=warc_fields(_said(page))))
    return b"".join(found)


def warcinfo(filename: str, *, made_ms: int, said: list[Field]) -> bytes:
    """The record that begins a file."""
    fields = [("WARC-Date", date(made_ms)), ("WARC-Filename", filename)]
    return _member("warcinfo", "", fields, block=warc_fields(said))


def date(time_ms: int) -> str:
    """A WARC-Date, to the millisecond."""
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def truncated(answer_outcome: records.Outcome, *, head: bytes, raw: bytes) -> str | None:
    """The WARC-Truncated reason of what was kept of an answer; None: all of it was."""
    match answer_outcome:
        case records.Fetched(truncated=None):
            return None
        case records.Fetched(truncated=reason) if reason in _CUT:
            return _CUT[reason]
        case records.Failed(reason=reason) if reason in _FAILED:
            return _FAILED[reason]
    # A redirect's body is not read, nor that of a type that is not wanted; one that cannot be decoded ends there.
    if getattr(answer_outcome, "status", 0) in _NO_BODY or str(len(raw)).encode() in _lengths(head):
        return None
    return "unspecified"


def agreeing(head: bytes, body: bytes | None) -> bytes:
    """A head that says of its body what is true of the body that was kept; None: of no body (a 304).

    Lines of white space alone would end the head too early for a reader: they are left out.
    """
    head = ended(head)
    lines = head.split(b"\n")
    framing = _framing(lines)
    codings = [word for name, value in framing.values() if name == b"transfer-encoding" for word in _words(value)]
    length = b"" if body is None else str(len(body)).encode()
    if body is None or (not codings and _lengths(head) <= {length}):
        return head
    lines = [(ORIGINAL if at in framing else b"") + line for at, line in enumerate(lines)]
    # What lies under chunked is still on the body.
    kept = b", ".join(word for word in codings if word not in {b"chunked", b"identity"})
    end = b"\r" if lines[0].endswith(b"\r") else b""
    added = [b"Content-Encoding: " + kept + end] if kept else []
    added.append(b"Content-Length: " + length + end)
    return b"\n".join([*lines[:-2], *added, *lines[-2:]])


def ended(head: bytes) -> bytes:
    """A head without lines of white space, with the one empty line that ends it."""
    lines = [line for line in head.split(b"\n") if _text(line).strip()]
    end = b"\r\n" if lines and lines[0].endswith(b"\r") else b"\n"
    return b"".join(line + b"\n" for line in lines) + end


def warc_fields(said: list[Field]) -> bytes:
    """A block of `application/warc-fields`; a value is one line."""
    return "".join(f"{name}: {' '.join(value.split())}\r\n" for name, value in said).encode()


def _response(page: pages.Visited) -> tuple[str, list[Field], bytes]:
    """Record type, its own fields, and the body that is written."""
    answer, outcome = page.answer, page.answer.outcome
    if isinstance(outcome, records.NotModified) and page.before is not None and _stands_for(page.before):
        # 6.7.3: the payload is the one from which the validators were taken.
        payload = ("WARC-Payload-Digest", f"sha1:{page.before.payload}")
        refers = _refers_to(page.url, page.before.captured_ms)
        return "revisit", [("WARC-Profile", f"{PROFILES}server-not-modified"), *refers, payload], b""
    payload = ("WARC-Payload-Digest", pages.labelled(page.payload or pages.payload_of(answer.raw)))
    cut = truncated(outcome, head=answer.head, raw=answer.raw)
    if page.duplicate is not None and cut is None:
        refers = _refers_to(page.duplicate.url, page.duplicate.fetched_ms)
        profile = ("WARC-Profile", f"{PROFILES}identical-payload-digest")
        # 6.7.2: the body that is left out counts as truncated for its length.
        return "revisit", [profile, *refers, payload, ("WARC-Truncated", "length")], b""
    return "response", [payload, *([("WARC-Truncated", cut)] if cut else [])], answer.raw


def _stands_for(page: records.PageRecord) -> bool:
    """Does a 304 stand for a body that is in an archive? Not where the request was without a condition."""
    return page.captured_ms > 0 and revisit.conditions(page) != (None, None)


def _refers_to(url: str, time_ms: int) -> list[Field]:
    return [("WARC-Refers-To-Target-URI", url), ("WARC-Refers-To-Date", date(time_ms))]


def _said(page: pages.Visited) -> list[Field]:
    """What the crawler knows beside the bytes."""
    answer, outcome = page.answer, page.answer.outcome
    known: list[tuple[str, object]] = [
        ("fetchTimeMs", round((answer.end_boot_s - answer.start_boot_s) * 1000)),
        ("visit", page.visit),
        ("depth", page.depth if page.visit != "robots" else None),
        ("charset-detected", page.charset),
        ("title", page.title),
        ("canonical", page.canonical),
        ("robots-meta", ", ".join(["noindex"] * page.noindex + ["nofollow"] * page.nofollow)),
        ("tls-fault", answer.tls_fault),
        ("failure", outcome.reason if isinstance(outcome, records.Failed) else None),
        ("cut", outcome.truncated if isinstance(outcome, records.Fetched) else None),
        ("decoding", outcome.decoding if isinstance(outcome, records.Fetched) else None),
        ("duplicate-of", page.duplicate.url if page.duplicate else None),
        ("location", revisit.header(outcome.headers, "location") if isinstance(outcome, records.Redirected) else None),
    ]
    fields = [(name, str(value)) for name, value in known if value not in {None, ""}]
    return [*fields, *(("outlink", link) for link in page.links)]


def _member(kind: str, url: str, fields: list[Field], *, head: bytes = b"", block: bytes = b"") -> bytes:
    """One record as the library writes it, compressed here: it would choose level 9."""
    file = io.BytesIO()
    writer = warcwriter.WARCWriter(file, gzip=False, warc_version="1.1")
    record = writer.create_warc_record(
        url,
        kind,
        payload=io.BytesIO(block),
        length=len(block),
        warc_headers_dict={"WARC-Type": kind, **dict(fields)},
        http_headers=Head(head) if head else None,
    )
    writer.write_record(record)
    return zlib.compress(file.getbuffer(), GZIP_LEVEL, GZIP)


def _lengths(head: bytes) -> set[bytes]:
    """Every Content-Length that a head gives, as written."""
    return {value.strip() for name, value in _framing(head.split(b"\n")).values() if name == b"content-length"}


def _framing(lines: list[bytes]) -> dict[int, tuple[bytes, bytes]]:
    """Where a head says how long the body is: line -> (name, value with the lines that continue it)."""
    found: dict[int, tuple[bytes, bytes]] = {}
    last = -1
    for at, line in enumerate(lines):
        if line[:1] in {b" ", b"\t"} and last in found:
            name, value = found[last]
            found[last] = name, value + line
            continue
        last = at
        named = _NAMED.match(line)
        if named is not None:
            found[at] = named[1].lower(), named[2]
    return found


def _words(value: bytes) -> Iterator[bytes]:
    return (word.strip().lower() for word in value.split(b",") if word.strip())


def _text(line: bytes) -> str:
    """A line as readers of WARC files take it: which characters are white space depends on that."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")
