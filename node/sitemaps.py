"""The URLs of a sitemap or feed, and when their site says they changed; knows no clock, no network.

Source: the sitemaps.org protocol, RSS 2.0 and 1.0, Atom (RFC 4287, and 0.3), W3C-DTF, RFC 822 section 5.

Extensions (images, videos, news, alternates) are passed over, priority and changefreq too: nobody keeps them true.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from node import charsets, dates, decode, markup
from shared import errors, urls

SNIFFED_BYTES: Final = 4_096  # comments and a style sheet stand before the root; more of them is no sitemap
STAMPED_ENTRIES_MIN: Final = 20
STAMPED_SPREAD_MS: Final = 60_000
DAY_MS: Final = 86_400_000

_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))[\t ]*+(https?://\S{1,8192}+)[\t ]*+(?=[\r\n]|\Z)", re.IGNORECASE)
# Where `<` is always a `<`: these are scanned as they are, all others are written as UTF-8 first.
_PLAIN_CODEC = re.compile(r"utf-8|cp12\d\d|iso8859-\d+|koi8-[ru]|mac-\w+|cp8\d\d|euc_jp|cp9\d\d|gb18030|big5hkscs")


class Entry(NamedTuple):
    """One page, or one further sitemap, that a sitemap names."""

    url: str
    """Canonical."""
    changed_ms: int = 0
    """When its site says that it changed, never after now; 0 = not said, or not for this sitemap to say."""
    trusted: bool = True
    """Of the sitemap's own site. Of others it is a link like any, since one site could push work onto another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitemap:
    """What one body names, each URL once, in its order."""

    kind: markup.Kind
    entries: tuple[Entry, ...] = ()
    children: tuple[Entry, ...] = ()
    """The sitemaps of an index."""
    fault: str | None = None
    """Why this is not the whole: size (bytes_max), urls (urls_max), encoding (gzip), markup; None: it is."""
    bad_urls: int = 0
    stamped: bool = False
    """All entries were dated alike within the last day: the time of writing, so no word on any of them."""


def looks_like(body: bytes, content_type: str | None = None) -> bool:
    """Whether a page that was no declared sitemap is one (or a feed) by its root element; microseconds."""
    del content_type  # servers send sitemaps as text/html, text/plain and worse: the root element says it
    head = body[:SNIFFED_BYTES]
    if head.startswith(decode.GZIP_MAGIC):
        head, _ = _unzipped(head, SNIFFED_BYTES)
    if _utf16(head) is not None:
        head, _ = _plain(head[: len(head) & ~1], None)
    return markup.root_of(head)[0] is not None


def read(
    body: bytes,
    *,
    url: str,
    content_type: str | None,
    now_ms: int,
    bytes_max: int,
    urls_max: int,
    declared: bool = True,
    site_of: Callable[[str], str] = urls.host_of,
) -> Sitemap | None:
    """The entries of one body; None if it is no sitemap and no feed. No body makes this raise.

    `url` is the sitemap's own, canonical; `declared` that somebody called it a sitemap, without which plain text is
    none. `site_of` says which canonical URLs the sitemap may speak for. Relative URLs are resolved, as browsers do
    with links. Takes up to a second for the largest: for a thread of its own.
    """
    fault = None
    if body.startswith(decode.GZIP_MAGIC):
        body, fault = _unzipped(body, bytes_max)
    if len(body) > bytes_max:
        body, fault = body[:bytes_max], "size"
    body, codec = _plain(body, content_type)
    root, at = markup.root_of(body)
    said: Iterator[markup.Said]
    if root is not None:
        kind, prefix = markup.KINDS[root["name"].lower()], (root["prefix"] or b"").lower()
        base = markup.based(markup.attributes_of(root, body, codec), url)
        said = markup.Scan(body, at, codec=codec, kind=kind, prefix=prefix, base=base, urls_max=urls_max).entries()
    elif declared and not body[:SNIFFED_BYTES].lstrip().startswith(b"<"):  # a page, whoever called it a sitemap
        kind, said = "text", _lines(body, codec, whole=fault is None)
    else:
        return None
    found = _gathered(said, kind=kind, url=url, now_ms=now_ms, urls_max=urls_max, site_of=site_of, fault=fault)
    return None if kind == "text" and not found.entries else found


def _gathered(
    said: Iterator[markup.Said],
    *,
    kind: markup.Kind,
    url: str,
    now_ms: int,
    urls_max: int,
    site_of: Callable[[str], str],
    fault: str | None,
) -> Sitemap:
    """Canonical, each once, dated where that may be believed."""
    site = site_of(url)
    found: dict[str, Entry] = {}
    bad = 0
    for one in said:
        if one.fault is not None:
            fault = fault or one.fault
            break
        if len(found) >= urls_max or bad >= urls_max:
            fault = fault or "urls"
            break
        try:
            target = urls.canonical(one.url, one.base or url)
        except errors.InvalidUrl:
            bad += 1
            continue
        trusted = site_of(target) == site
        changed_ms = dates.milliseconds(one.date, now_ms=now_ms) if trusted and one.date else 0
        known = found.get(target)
        if known is None or known.changed_ms < changed_ms:
            found[target] = Entry(target, changed_ms, trusted)
    entries = tuple(found.values())
    stamped = kind in {"urlset", "index"} and _stamped(entries, now_ms)
    if stamped:
        entries = tuple(entry._replace(changed_ms=0) for entry in entries)
    return Sitemap(
        kind=kind,
        entries=() if kind == "index" else entries,
        children=entries if kind == "index" else (),
        fault=fault,
        bad_urls=bad,
        stamped=stamped,
    )


def _stamped(entries: tuple[Entry, ...], now_ms: int) -> bool:
    """Whether the dates are the time at which the sitemap was written: all one moment, and of today."""
    moments = [entry.changed_ms for entry in entries if entry.changed_ms]
    if len(moments) < STAMPED_ENTRIES_MIN:
        return False
    return max(moments) - min(moments) <= STAMPED_SPREAD_MS and now_ms - max(moments) <= DAY_MS


def _lines(body: bytes, codec: str, *, whole: bool) -> Iterator[markup.Said]:
    """The URLs of a text sitemap, one a line; a last line that was cut is none."""
    for found in _LINE.finditer(body):
        if whole or found.end() < len(body):
            yield markup.Said(found[1].decode(codec, "replace"))


def _unzipped(body: bytes, bytes_max: int) -> tuple[bytes, str | None]:
    """(plain bytes, fault): at most `bytes_max` of them, and what came before a fault."""
    plain = decode.Body(("gzip",), bytes_max=bytes_max)
    plain.feed(body)
    plain.finish()
    return plain.data, plain.fault


def _plain(body: bytes, content_type: str | None) -> tuple[bytes, str]:
    """(bytes in which markup is ASCII, their codec), without a byte order mark."""
    if body.startswith(b"\xef\xbb\xbf"):
        return body[3:], "utf-8"
    codec = _utf16(body) or charsets.in_header(content_type or "") or charsets.declared_in(body) or "utf-8"
    if _PLAIN_CODEC.fullmatch(codec):
        return body, codec
    return body.decode(codec, "replace").removeprefix("\ufeff").encode("utf-8", "replace"), "utf-8"


def _utf16(body: bytes) -> str | None:
    if body.startswith((b"\xff\xfe", b"<\x00")):
        return "utf-16-le"
    return "utf-16-be" if body.startswith((b"\xfe\xff", b"\x00<")) else None
