"""The links, title and meta robots of one page; a bad link is dropped and counted, the page is kept; pure.

A page is thinned to the few tags that matter before a tree is built of it: HTML's rules for misnested tags let
27 KB of them grow to 700 MB of tree, and 500 KB cost minutes. For X-Robots-Tag and meta robots the source is what
search engines publish.
"""

import contextlib
import dataclasses
import re
from typing import Final, NamedTuple

from selectolax import lexbor

from node import charsets
from shared import errors, urls

TAGS_MAX: Final = 50_000  # links, bases and metas of one page; with more, it was not made for people
TITLE_CHARS_MAX: Final = 500  # of a title; more is a page that put its text there
HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})

_LINKS: Final = "a[href],area[href],iframe[src]"
# Possessive throughout, and never without a match: time is linear in the page, whatever it holds. A tag of more
# than 64 attributes (two steps each) is no link but an attack on whoever compares them pairwise.
_KEPT: Final = "a|area|base|meta|link|iframe|frame|title|script|style|textarea|xmp"
_STEP: Final = r"""(?:[\s/]++|[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+)"""
_NEXT_TAG = re.compile(
    rf"(?:[^<]++|<(?:/[a-z]|(?!(?:{_KEPT})[\s/>])[a-z])[^\s/>]*+{_STEP}*+(?:>|\Z)"
    r"|<!--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\Z))|<[!?][^>]*+>?+|<(?![a-z/!?])|</(?![a-z]))*+"
    rf"(?:(?P<tag><(?P<name>{_KEPT})(?=[\s/>]){_STEP}{{0,130}}+>)"
    rf"|<(?:{_KEPT})(?=[\s/>]){_STEP}*+(?:>|\Z)|\Z)",
    re.IGNORECASE,
)
# What stands between these and their end tags is text, not markup.
_RAW: Final = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "textarea", "xmp", "title", "iframe")
}
# One `<target>; name=value; name="value"` of a Link header, commas within quotes and targets left whole.
_LINK_VALUE = re.compile(r"""[\s,]*+<([^>]*+)>((?:\s*+;(?:[^",;]++|"(?:[^"\\]|\\.)*+"?+)*+)*+)\s*+""", re.DOTALL)
_LINK_PARAM = re.compile(r""";\s*+([^\s=;"]++)\s*+=\s*+(?:"([^"]*+)"|([^\s;"]++))""")
# HTML, "shared declarative refresh steps": without a mark or a space behind its seconds it names no URL.
_REFRESH = re.compile(
    r"\s*+(?:[0-9]++[0-9.]*+|\.[0-9.]*+)(?:\s*+[;,]\s*+|\s++)(?:url\s*+=\s*+)?+(.+)", re.IGNORECASE | re.DOTALL
)
_UNKNOWN_TYPES: Final = frozenset({"*/*", "unknown/unknown", "application/unknown"})  # MIME sniffing standard, 7.1
_WORDS_END = re.compile(r"[\s,;]+")
_CRAWLER = re.compile(r"[a-z0-9_.*-]+")
# Directives of X-Robots-Tag that have a value; any other name before a colon is a crawler's.
_VALUED: Final = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page says to a crawler."""

    links: tuple[str, ...] = ()
    """Canonical, each once, in the page's order; none if the page says nofollow."""
    title: str | None = None
    charset: str = "utf-8"
    """The Python codec the body was read with."""
    nofollow: bool = False
    noindex: bool = False
    bad_links: int = 0
    canonical: str | None = None
    """Which URL the page says it is (rel=canonical), in our form; recorded, not obeyed."""


def extract(
    body: bytes, *, content_type: str | None, url: str, links_max: int, token: str = "", form: urls.Form = urls.PLAIN
) -> Page:
    """Read one page; `token` is our product token, whose own meta robots element counts beside "robots".

    Links come in the operator's form, their queries in the page's encoding. No body makes this raise; one that is
    not HTML gives an empty page.
    """
    encoding = charsets.encoding_of(body, content_type)
    charset = charsets.reader_of(encoding)
    if not is_html(body, content_type):
        return Page(charset=charset)
    tree = lexbor.LexborHTMLParser(thinned(charsets.text_of(body, charset)))
    noindex, nofollow = _meta_robots(tree, token.lower())
    place = _Place(_base(tree, url, encoding), form, encoding)
    found: tuple[tuple[str, ...], int] = ((), 0) if nofollow else _links(tree, place, links_max=links_max)
    return Page(
        links=found[0],
        title=_title(tree),
        charset=charset,
        nofollow=nofollow,
        noindex=noindex,
        bad_links=found[1],
        canonical=_canonical(tree, place),
    )


class _Place(NamedTuple):
    """What a page's links are read by."""

    base: str
    form: urls.Form
    encoding: str


def is_html(body: bytes, content_type: str | None) -> bool:
    """Whether a body is read for links: by its declared type, else by looking like text."""
    declared = (content_type or "").partition(";")[0].strip().lower()
    if "/" in declared and declared not in _UNKNOWN_TYPES:
        return declared in HTML_TYPES
    head = body[: charsets.DECLARED_BYTES]
    return b"<" in head and (b"\x00" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff")))


def robots_directives(values: tuple[str, ...], token: str = "") -> tuple[bool, bool]:
    """(noindex, nofollow) of X-Robots-Tag values; a part "name: ..." counts only for our own token."""
    noindex = nofollow = False
    for value in values:
        ours = True
        for part in value.lower().split(","):
            name, colon, rest = part.partition(":")
            # The rest of a date ("03 dec 2025 13:09:53 pst") is no crawler either.
            named = colon and name.strip() not in _VALUED and _CRAWLER.fullmatch(name.strip()) is not None
            if named:
                ours = name.strip() in {token.lower(), "*"}
            words = set((rest if named else part).split())
            noindex = noindex or (ours and bool(words & {"noindex", "none"}))
            nofollow = nofollow or (ours and bool(words & {"nofollow", "none"}))
    return noindex, nofollow


def canonical_header(values: tuple[str, ...], url: str, form: urls.Form = urls.PLAIN) -> str | None:
    """The first rel=canonical of a page's Link headers (RFC 8288) that is a URL we could crawl; None if none is."""
    for value in values:
        at = 0
        while (link := _LINK_VALUE.match(value, at)) is not None and link.end() > at:
            at = link.end()
            params = {name.lower(): quoted or bare for name, quoted, bare in reversed(_LINK_PARAM.findall(link[2]))}
            rel = "" if "anchor" in params else params.get("rel", "")  # with an anchor it speaks of another page
            if "canonical" in rel.lower().split():
                with contextlib.suppress(errors.InvalidUrl):
                    return urls.canonical(link[1], url, form=form)
    return None


def thinned(text: str) -> str:
    """The page's links, bases, metas and titles alone, in order, as flat markup."""
    kept: list[str] = []
    at = 0
    while at < len(text) and len(kept) < TAGS_MAX:
        found = _NEXT_TAG.match(text, at)
        assert found is not None  # the pattern ends in alternatives that match anything
        at = found.end()
        name = (found["name"] or "").lower()
        close = _RAW[name].search(text, at) if name in _RAW else None
        inside, at = (text[at : close.start()], close.start()) if close else ("", len(text) if name in _RAW else at)
        if name == "title":
            kept.append(f"<title>{inside[: TITLE_CHARS_MAX * 8]}</title>")
        elif name in {"iframe", "frame"}:
            # A frame outside a frameset would be dropped by the tree; a crawler follows it all the same.
            kept.append(f"<iframe{found['tag'][len(name) + 1 :]}</iframe>")
        elif name == "link" and "canonical" not in found["tag"].lower():
            continue  # a style sheet, an icon: most of them
        elif name and name not in _RAW:
            kept.append(found["tag"])
    return "".join(kept)


def _links(tree: lexbor.LexborHTMLParser, place: _Place, *, links_max: int) -> tuple[tuple[str, ...], int]:
    base, form, encoding = place
    links: dict[str, None] = {}
    seen: set[str] = set()
    bad = 0
    for raw in _hrefs(tree):
        if raw in seen:
            continue
        seen.add(raw)
        scheme = urls.SCHEME.match(raw)
        # mailto:, javascript: and their like are no bad links, they are none; "#" is this page.
        if raw.startswith("#") or (scheme is not None and scheme[1].lower() not in {"http", "https"}):
            continue
        try:
            links[urls.canonical(raw, base, form=form, encoding=encoding)] = None
        except errors.InvalidUrl:
            bad += 1
        if len(links) >= links_max:
            break
    return tuple(links), bad


def _hrefs(tree: lexbor.LexborHTMLParser) -> list[str]:
    """Every link as written, in order, a meta refresh first; rel=nofollow is left out."""
    found = []
    for node in tree.css("meta[http-equiv][content]"):
        meta = node.attributes
        if (meta["http-equiv"] or "").strip().lower() == "refresh":
            target = refreshed(meta["content"] or "")
            if target is not None:
                found.append(target)
    for node in tree.css(_LINKS):
        attributes = node.attributes
        rel = attributes.get("rel")
        if rel is not None and "nofollow" in _WORDS_END.split(rel.lower()):
            continue
        target = attributes.get("href") if "href" in attributes else attributes.get("src")
        if target:
            found.append(target)
    return found


def refreshed(value: str) -> str | None:
    """The URL that a Refresh, meta element or header, leads to, as written; None where it only asks for a reload."""
    match = _REFRESH.fullmatch(value)
    return _unquoted(match[1].strip()) or None if match is not None else None


def _unquoted(target: str) -> str:
    """A meta refresh target without its quotes; what follows a closing quote is dropped, as browsers do."""
    return target[1:].partition(target[0])[0] if target[:1] in {"'", '"'} else target


def _canonical(tree: lexbor.LexborHTMLParser, place: _Place) -> str | None:
    """The first rel=canonical that is a URL we could crawl."""
    for node in tree.css("link[rel][href]"):
        attributes = node.attributes
        href = attributes["href"]
        if href and "canonical" in (attributes["rel"] or "").lower().split():
            with contextlib.suppress(errors.InvalidUrl):
                return urls.canonical(href, place.base, form=place.form, encoding=place.encoding)
    return None


def _base(tree: lexbor.LexborHTMLParser, url: str, encoding: str) -> str:
    """The first base element's href, if it is a URL we could crawl, else the page's own."""
    node = tree.css_first("base[href]")
    href = node.attributes.get("href") if node is not None else None
    if not href:
        return url
    try:
        return urls.canonical(href, url, encoding=encoding)
    except errors.InvalidUrl:
        return url


def _meta_robots(tree: lexbor.LexborHTMLParser, token: str) -> tuple[bool, bool]:
    noindex = nofollow = False
    for node in tree.css("meta[name][content]"):
        meta = node.attributes
        name = (meta["name"] or "").strip().lower()
        if name == "robots" or (token and name == token):
            words = set(_WORDS_END.split((meta["content"] or "").lower()))
            noindex = noindex or bool(words & {"noindex", "none"})
            nofollow = nofollow or bool(words & {"nofollow", "none"})
    return noindex, nofollow


def _title(tree: lexbor.LexborHTMLParser) -> str | None:
    node = tree.css_first("title")
    if node is None:
        return None
    return " ".join(node.text().split())[:TITLE_CHARS_MAX] or None
