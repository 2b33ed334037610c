"""One answer while it comes in: its fields, its body up to a cap, and the outcome that they come to.

It asks for nothing, and closes only a connection whose rest is not wanted. Source: RFC 9110, the fetch standard.
"""

import io
import re
from collections.abc import Callable, Sequence

import aiohttp

from node import decode, wire
from shared import records

REDIRECTS = frozenset({300, 301, 302, 303, 307, 308})
TARGETED = REDIRECTS - {300}  # without a Location these mean nothing; 300 may be a page of choices
RAW_SLACK_BYTES = 64 * 1024  # what a coding may cost beyond what it saves
REDIRECT_BYTES_MAX = 64 * 1024  # of a redirect's body, which is read for the archive alone
LISTED = re.compile(r"""(?:[^,"]++|"(?:[^"\\]|\\.)*+"?+)++""")  # what commas part, but for those in quotes
MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]++/[!#$%&'*+.^_`|~0-9A-Za-z-]++(?=[\s;]|\Z)")
READ = frozenset(
    {"content-type", "content-encoding", "content-length", "content-range", "location", "transfer-encoding"}
)
WHOLE_RANGE = re.compile(r"\s*bytes\s+0-([0-9]{1,15})/([0-9]{1,15})\s*", re.IGNORECASE)
HIGH_BYTES = re.compile(rb"[\x80-\xff]")


class Reply:
    """One answer while it comes in."""

    def __init__(self, bytes_max: int, wanted: Callable[[str | None], bool] | None) -> None:
        self.received_bytes = 0
        self.cut: str | None = None
        """Why what was received is not all."""
        self.content_type: str | None = None
        self._wanted = wanted
        self._raw = io.BytesIO()
        self._transfer: list[str] = []
        self._locations: set[str] = set()
        self._bytes_max = bytes_max
        self._begun = False
        self._status = 0
        self._headers: tuple[tuple[str, str], ...] = ()
        self._values: dict[str, list[str]] = {}
        """By lower-case name; of those in READ alone."""
        self._body: decode.Body | None = None
        """What undoes the codings; None without any."""

    @property
    def headed(self) -> bool:
        return self._begun

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
        return self._status in {204, 304} and any(text != "0" for text in self._said("content-length"))

    def begin(self, status: int, fields: Sequence[tuple[bytes, bytes]]) -> None:
        headers = []
        for raw_name, raw_value in fields:
            name, value = _text(raw_name), _text(raw_value)
            headers.append((name, value))
            low = name.lower()
            if low in READ:
                self._values.setdefault(low, []).append(value)
                if low == "location" and raw_value.strip():
                    self._locations.add(_location(raw_value))
        self._headers = tuple(headers)
        self._begun, self._status = True, status
        self.content_type = _media_type(self._said("content-type"))
        codings = _words(self._said("content-encoding"))
        # Transfer codings lie on top of content codings; aiohttp undoes chunked and passes the others on.
        transfer = _words(self._said("transfer-encoding"))
        self._transfer = [word for word in transfer if word != "chunked"]
        if codings or self._transfer:
            self._body = decode.Body(codings + self._transfer, bytes_max=self._bytes_max)
            if self._transfer and "chunked" in transfer[: transfer.index(self._transfer[-1])]:
                self._body.fault = "encoding"  # chunks inside another coding: nobody undoes that

    async def read(self, body: aiohttp.StreamReader, handler: wire.Handler) -> None:
        """Take the body, or close the connection where the rest of it is not wanted."""
        if self._status == 304:
            return
        raw_max = self._bytes_max + (RAW_SLACK_BYTES if self._body is not None else 0)
        if self.redirects:
            raw_max = min(raw_max, REDIRECT_BYTES_MAX)
        elif self._wanted is not None and not self._wanted(self.content_type):
            self.cut = "type"
            handler.close()
            return
        while chunk := await body.readany():
            room = raw_max - self.received_bytes
            self.received_bytes += len(chunk)
            self._raw.write(chunk if len(chunk) <= room else chunk[:room])
            if self._body is not None:
                self._body.feed(chunk)
            # What no coding explains is read on all the same: an archive wants the bytes.
            if len(chunk) > room or (self._body is not None and self._body.fault == "size"):
                self.cut = "size"
                handler.close()
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
        fault = self._body.fault if self._body is not None else None
        truncated = fault or self.cut
        if truncated is None and self._status == 206 and not any(map(_is_whole, self._said("content-range"))):
            truncated = "range"  # nobody asked for a part
        if self._body is None:
            return records.Fetched(
                status=self._status, headers=self._headers, body=self._raw.getvalue(), truncated=truncated
            )
        self._body.finish()  # what a decoder holds back is wanted of a torn body, too
        return records.Fetched(
            status=self._status,
            headers=self._headers,
            body=self._decoded(self._body.data),
            truncated=truncated or self._body.fault,
            decoding=self._body.note,
        )

    def _decoded(self, body: bytes) -> bytes:
        raw = self._raw.getvalue()
        return raw if body == raw else body  # one copy in memory where the label was wrong

    def _said(self, name: str) -> list[str]:
        return self._values.get(name, [])


def _words(values: Sequence[str]) -> list[str]:
    return [word.strip().lower() for value in values for word in value.split(",") if word.strip()]


def _is_whole(content_range: str) -> bool:
    """Whether a Content-Range is all there is: `bytes 0-99/100`."""
    found = WHOLE_RANGE.fullmatch(content_range)
    return found is not None and int(found[1]) + 1 == int(found[2])


def _media_type(values: list[str]) -> str | None:
    """The Content-Type that counts where there are several, in lines or by commas: the last that is one.

    Source: the fetch standard, "extract a MIME type"; a charset is handed on from one to the next of the same type.
    """
    if len(values) == 1 and "," not in values[0] and (plain := MEDIA_TYPE.match(values[0])) and plain[0] != "*/*":
        return values[0].strip()
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
