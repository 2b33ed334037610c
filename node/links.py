"""The links, title and meta robots of one page; a bad link is dropped and counted, the page is kept; pure.

No tree is built of a page: HTML's rules for misnested tags let 27 KB of them grow to 700 MB of tree, and 500 KB cost
minutes. The tags that matter are found in its text by HTML's tokenizer rules; the usual link is read where it stands,
the attributes of the others in one small flat tree. For X-Robots-Tag and meta robots the source is what search
engines publish.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from selectolax import lexbor

from node import charsets
from shared import errors, urls

TAGS_MAX: Final = 50_000  # links, bases and metas of one page; with more, it was not made for people
TITLE_CHARS_MAX: Final = 500  # of a title; more is a page that put its text there
HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})


def _names(*names: str) -> str:
    """A pattern of tag names in either case; the flag for it would cost a third of the time."""
    return "|".join("".join(f"[{char}{char.upper()}]" for char in name) for name in names)


# Possessive throughout, and never without a match: time is linear in the page, whatever it holds. A tag of more
# than 64 attributes (two steps each) is no link but an attack on whoever compares them pairwise.
_SPACE: Final = r"\t\n\f\r "
_VALUE: Final = rf"""[{_SPACE}]*+=[{_SPACE}]*+(?:"[^"]*+"|'[^']*+'|[^{_SPACE}>"'][^{_SPACE}>]*+"""
_STEP: Final = rf"(?:[{_SPACE}/]++|[^{_SPACE}/>][^{_SPACE}/>=]*+(?:{_VALUE})?+)?+)"
# The same where quotes are closed: with an open one, a tree would take the tags behind it for its value.
_CLOSED_STEP: Final = rf"(?:[{_SPACE}/]++|[^{_SPACE}/>][^{_SPACE}/>=]*+(?:{_VALUE}|(?=>))|(?![{_SPACE}]*+=)))"
_KEPT: Final = f"(?:{_names('a', 'area', 'base', 'meta', 'link', 'frame')})(?=[{_SPACE}/>])"
# What stands between these and their end tags is text, not markup.
_RAW: Final = f"(?:{_names('script', 'style', 'textarea', 'xmp', 'title', 'iframe')})(?=[{_SPACE}/>])"
_RAW_END: Final = {
    name: re.compile(rf"</{name}(?=[{_SPACE}/>])", re.IGNORECASE | re.ASCII)
    for name in ("script", "style", "textarea", "xmp", "title", "iframe")
}
# One attribute as most are written, but for the address, and for a rel that might say nofollow.
_USUAL: Final = (
    rf"[{_SPACE}]++(?:(?!href=|rel=)[a-z][a-z0-9_:-]*+=\"[^\"]*+\"|rel=\"(?:no(?:opener|referrer)|external|[ ])*+\")"
)
_NEXT_TAG: Final = re.compile(
    # What is passed over: text, and a tag behind it (as most are written, or any other), a comment or its like.
    rf"(?:[^<]*+<(?:(?:/[a-zA-Z][a-zA-Z0-9]*+|(?:[c-eg-hj-knpqru-wyz]|(?!{_KEPT}|{_RAW})[a-zA-Z])[a-zA-Z0-9]*+"
    rf"""(?:[ ][a-z-]++(?:=(?:"[^"]*+"|'[^']*+'|[^{_SPACE}<>"'=]++))?+)*+)>"""
    rf"|(?:/[a-zA-Z]|(?!{_KEPT}|{_RAW})[a-zA-Z])[^{_SPACE}/>]*+{_STEP}*+(?:>|\Z)"
    r"|!--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\Z))|[!?][^>]*+>?+|(?![a-zA-Z/!?])|/(?![a-zA-Z])))*+[^<]*+"
    # What is read: the usual link, or another tag that matters; one that is too long or has no end is passed over.
    rf"(?:(?P<tag><(?:a(?:{_USUAL}){{0,30}}+[{_SPACE}]++href=\"(?P<href>[^\"\r\0]*+)\"(?:{_USUAL}){{0,30}}+"
    rf"[{_SPACE}]*+>|(?P<name>{_KEPT}|{_RAW}){_CLOSED_STEP}{{0,130}}+>))|<(?:{_KEPT}|{_RAW}){_STEP}*+(?:>|\Z)|\Z)"
)
# One `<target>; name=value; name="value"` of a Link header, commas within quotes and targets left whole.
_LINK_VALUE = re.compile(r"""[\s,]*+<([^>]*+)>((?:\s*+;(?:[^",;]++|"(?:[^"\\]|\\.)*+"?+)*+)*+)\s*+""", re.DOTALL)
_LINK_PARAM = re.compile(r""";\s*+([^\s=;"]++)\s*+=\s*+(?:"([^"]*+)"|([^\s;"]++))""")
# HTML, "shared declarative refresh steps": without a mark or a space behind its seconds it names no URL.
_REFRESH = re.compile(
    r"\s*+(?:[0-9]++[0-9.]*+|\.[0-9.]*+)(?:\s*+[;,]\s*+|\s++)(?:url\s*+=\s*+)?+(.+)", re.IGNORECASE | re.DOTALL
)
_UNKNOWN_TYPES: Final = frozenset({"*/*", "unknown/unknown", "application/unknown"})  # MIME sniffing standard, 7.1
_WEB: Final = ("https://", "http://")
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
    scan = scanned(charsets.text_of(body, charset), token.lower())
    noindex, nofollow = _meta_robots(scan, token.lower())
    place = urls.Page(_base(scan, url, encoding), form=form, encoding=encoding)
    found: tuple[tuple[str, ...], int] = ((), 0) if nofollow else _links(scan, place, links_max=links_max)
    return Page(
        links=found[0],
        title=scan.title,
        charset=charset,
        nofollow=nofollow,
        noindex=noindex,
        bad_links=found[1],
        canonical=_canonical(scan, place),
    )


Attributes = dict[str, str | None]
"""Of one start tag: names in lower case, of two of one name the first; values with their references resolved."""


class Scan(NamedTuple):
    """What of a page's markup matters, each in its order."""

    addresses: list[str]
    """As links give them; "" for one that gives none, or says nofollow."""
    others: list[tuple[str, Attributes]]
    """base, link and meta."""
    title: str | None


def is_html(body: bytes, content_type: str | None) -> bool:
    """Whether a body is read for links: by its declared type, else by looking like text."""
    declared = (content_type or "").partition(";")[0].strip().lower()
    if "/" in declared and declared not in _UNKNOWN_TYPES:
        return declared in HTML_TYPES
    head = body[: charsets.DECLARED_BYTES]
    return b"<" in head and (b"\x00" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff")))


def robots_directives(values: Sequence[str], token: str = "") -> tuple[bool, bool]:
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


def canonical_header(values: Sequence[str], url: str, form: urls.Form = urls.PLAIN) -> str | None:
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


def scanned(text: str, token: str = "") -> Scan:
    """A page's tags that matter; meta elements of our own `token` (in lower case) among them."""
    hrefs: list[str | None] = []  # None: its tag is the next of those that a tree must read
    tags: list[str] = []
    titles: list[str] = []
    at = 0
    while at < len(text) and len(hrefs) < TAGS_MAX and len(tags) < TAGS_MAX:
        found = _NEXT_TAG.match(text, at)
        assert found is not None  # the pattern ends in alternatives that match anything
        at = found.end()
        tag, href, written = found.groups()
        if href is not None and ("&" not in href or href.count("&") == href.count("&amp;")):
            hrefs.append(href.replace("&amp;", "&"))
            continue
        name = "a" if href is not None else (written or "").lower()
        if name in _RAW_END:
            close = _RAW_END[name].search(text, at)
            inside, at = (text[at : close.start()], close.start()) if close else ("", len(text))
            if name == "title" and not titles:
                titles.append(inside[: TITLE_CHARS_MAX * 8])
        if name in {"a", "area", "iframe", "frame"}:
            # A frame outside a frameset would be dropped by the tree; a crawler follows it all the same.
            tags.append(tag if name in {"a", "area"} else f"<iframe{tag[len(name) + 1 :]}</iframe>")
            hrefs.append(None)
        elif name == "base" or (name in {"link", "meta"} and _matters(name, tag.lower(), token)):
            tags.append(tag)
    return _read(hrefs, tags, titles)


def _matters(name: str, tag: str, token: str) -> bool:
    """Whether a link or meta may be one that is looked at: few are; a reference may hide any word."""
    if name == "link":
        return "canonical" in tag
    if "&" in tag or "refresh" in tag:
        return True
    return "no" in tag and ("robots" in tag or (token != "" and token in tag))  # nofollow, noindex, none


def _read(hrefs: list[str | None], tags: list[str], titles: list[str]) -> Scan:
    title = titles[0] if titles else ""
    if "&" in title or "\0" in title:
        node = lexbor.LexborHTMLParser(f"<title>{title}</title>").css_first("title")
        title = node.text() if node is not None else ""
    others: list[tuple[str, Attributes]] = []
    addresses: list[str] = []
    for node in lexbor.LexborHTMLParser("".join(tags)).css("a,area,base,iframe,link,meta") if tags else ():
        name = node.tag or ""
        if name in {"base", "link", "meta"}:
            others.append((name, node.attributes))
        else:
            addresses.append(_address(name, node.attributes))
    if addresses:  # as many as there are tags: nothing among them nests, or ends another
        read = iter(addresses)
        addresses = [next(read, "") if href is None else href for href in hrefs]
    else:
        addresses = [href for href in hrefs if href is not None]
    return Scan(addresses, others, " ".join(title.split())[:TITLE_CHARS_MAX] or None)


def _address(name: str, attributes: Attributes) -> str:
    rel = attributes.get("rel")
    if rel is not None and "nofollow" in _WORDS_END.split(rel.lower()):
        return ""
    return attributes.get("src" if name == "iframe" else "href") or ""


def _links(scan: Scan, page: urls.Page, *, links_max: int) -> tuple[tuple[str, ...], int]:
    links: dict[str, None] = {}
    bad = 0
    for raw in dict.fromkeys((*_refreshes(scan), *scan.addresses)):  # a refresh comes first
        if (
            not raw or raw[0] == "#" or (":" in raw and not raw.startswith(_WEB) and _is_no_link(raw))
        ):  # "#" is this page
            continue
        try:
            links[page.canonical(raw)] = None
        except errors.InvalidUrl:
            bad += 1
        if len(links) >= links_max:
            break
    return tuple(links), bad


def _is_no_link(raw: str) -> bool:
    """mailto:, javascript: and their like are no bad links, they are none."""
    scheme = urls.SCHEME.match(raw)
    return scheme is not None and scheme[1].lower() not in {"http", "https"}


def _refreshes(scan: Scan) -> Iterator[str]:
    for name, meta in scan.others:
        if name == "meta" and (meta.get("http-equiv") or "").strip().lower() == "refresh":
            target = refreshed(meta.get("content") or "")
            if target is not None:
                yield target


def refreshed(value: str) -> str | None:
    """The URL that a Refresh, meta element or header, leads to, as written; None where it only asks for a reload."""
    match = _REFRESH.fullmatch(value)
    return _unquoted(match[1].strip()) or None if match is not None else None


def _unquoted(target: str) -> str:
    """A meta refresh target without its quotes; what follows a closing quote is dropped, as browsers do."""
    return target[1:].partition(target[0])[0] if target[:1] in {"'", '"'} else target


def _canonical(scan: Scan, page: urls.Page) -> str | None:
    """The first rel=canonical that is a URL we could crawl."""
    for name, link in scan.others:
        href = link.get("href")
        if name == "link" and href and "canonical" in (link.get("rel") or "").lower().split():
            with contextlib.suppress(errors.InvalidUrl):
                return page.canonical(href)
    return None


def _base(scan: Scan, url: str, encoding: str) -> str:
    """The first base element's href, if it is a URL we could crawl, else the page's own."""
    href = next((base["href"] for name, base in scan.others if name == "base" and "href" in base), None)
    if not href:
        return url
    try:
        return urls.canonical(href, url, encoding=encoding)
    except errors.InvalidUrl:
        return url


def _meta_robots(scan: Scan, token: str) -> tuple[bool, bool]:
    noindex = nofollow = False
    for name, meta in scan.others:
        named = (meta.get("name") or "").strip().lower() if name == "meta" and "content" in meta else ""
        if named and named in {"robots", token}:
            words = set(_WORDS_END.split((meta["content"] or "").lower()))
            noindex = noindex or bool(words & {"noindex", "none"})
            nofollow = nofollow or bool(words & {"nofollow", "none"})
    return noindex, nofollow
