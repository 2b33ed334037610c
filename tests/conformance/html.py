"""Pages: links, bases, refreshes, meta robots and charsets that others expect of given markup.

Judged by `links.extract` and `charsets`, as a visit calls them. We follow what leads to another page (a, area, frames,
meta refresh); pictures, scripts and forms are none, and the rows that want them are left out by their markup.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from node import charsets, links
from shared import errors, urls
from tests import corpus
from tests.conformance.corpora import Corpus, Row
from tests.conformance.urls import judged

LINKS_MAX = 1_000


def _page(body: bytes, url: str, content_type: str = "text/html") -> links.Page:
    return links.extract(body, content_type=content_type, url=url, links_max=LINKS_MAX)


def _forms(found: list[str], url: str | None = None) -> list[str]:
    """Canonical, each once, those that have no form left out."""
    forms: dict[str, None] = {}
    for link in found:
        try:
            forms[urls.canonical(link, url)] = None
        except errors.InvalidUrl:
            continue
    return list(forms)


def _same(name: str, found: object, wanted: object) -> Row:
    return Row(name, found == wanted, "" if found == wanted else f"{wanted} expected, {found} came")


# Options that ask the extractor for all links of a page, or for one subset of them that is no matter of markup.
_OPTIONS = frozenset({"unique", "allow", "deny", "allow_domains", "deny_domains", "deny_extensions", "restrict_text"})


def scrapy() -> Iterator[Row]:
    """Rows of scrapy's default tags. Where an option picks some of the links, those must be among ours, in that order."""
    for number, row in enumerate(corpus.load("html/scrapy/linkextractor_cases.json")["cases"]):
        options = row["options"]
        whole = not options or set(options) == {"unique"} or options == {"attrs": "href"}
        if not (whole or set(options) <= _OPTIONS or set(options) <= {"restrict_xpaths", "restrict_css"}):
            continue
        body = row["body"]
        octets = corpus.octets(body) if "b64" in body else body["text"].encode(row["encoding"] or "utf-8")
        found = list(_page(octets, row["url"], f"text/html; charset={row['encoding']}").links)
        wanted = _forms([link["url"] for link in row["links"] if not link["nofollow"]])
        name = f"{number} {row['test'].split('::')[-1]} {json.dumps(options)}"
        if row["test"].endswith("test_ignored_extensions"):
            whole = False  # scrapy skips .jpg by its name, we by its type
        if not whole:
            found = [link for link in found if link in set(wanted)]
        yield _same(name, found, wanted)


# What a row's markup must not need: embeds, scripts, forms, other metas.
_EMBEDS = re.compile(r"<img|<source|<script|<form|property=|srcset", re.IGNORECASE)


def heritrix() -> Iterator[Row]:
    for number, row in enumerate(corpus.load("html/heritrix_html_cases.json")["cases"]):
        name = f"{number} {row['test']}"
        if row["test"] == "testDisobeyRelNofollow":
            continue
        found = _page(row["html"].encode(), row["base"])
        if row["test"] == "testLinkRel":
            yield _same(name, (found.canonical, found.links), ("https://www.example.org/canonical", ()))
        elif "links" in row and not row["links"]:
            yield _same(name, found.links, ())  # nothing to find: also in scripts and pictures
        elif _EMBEDS.search(row["html"]):
            continue
        elif "links" in row:
            yield _same(name, sorted(found.links), sorted(_forms(row["links"])))
        elif "links_include" in row:
            yield _same(name, set(_forms(row["links_include"])) - set(found.links), set())
        elif "links_contain_text" in row:
            missing = [text for text in row["links_contain_text"] if not any(text in link for link in found.links)]
            yield _same(name, missing, [])


def bases_of_heritrix() -> Iterator[Row]:
    """Its rows of base elements, the picture they are tried with made a link."""
    for number, row in enumerate(corpus.load("html/heritrix_html_cases.json")["cases"]):
        if "BaseHref" in row["test"] and "<img" in row["html"]:
            html = row["html"].replace("<img src=", "<a href=")
            found = _page(html.encode(), row["base"]).links
            missing = [text for text in row["links_contain_text"] if not any(text in link for link in found)]
            yield _same(f"{number} {row['test']}", missing, [])


def meta_robots() -> Iterator[Row]:
    data = corpus.load("html/meta_robots_cases.json")
    for number, row in enumerate(data["cases"]):
        found = _page(row["html"].encode(), "https://example.com/")
        yield _same(f"meta {number}", (found.noindex, found.nofollow), (row["noindex"], row["nofollow"]))
    for number, row in enumerate(data["x_robots_tag"]["cases"]):
        flags = links.robots_directives(tuple(row["headers"]))
        yield _same(f"header {number}", flags, (row["noindex"], row["nofollow"]))
    for number, html in enumerate(data["meta_refresh"]["html"]):
        found = _page(html.encode(), "https://example.com/")
        yield _same(f"refresh {number}", found.links, (data["meta_refresh"]["expected"],))


def _called(row: dict[str, Any]) -> tuple[bytes, str, str]:
    """A w3lib row's markup, page and charset."""
    html, *rest = row["args"]
    url = rest.pop(0) if rest else ""
    encoding = (row.get("kwargs") or {}).get("encoding") or (rest[0] if rest else "utf-8")
    body = corpus.octets(html) if isinstance(html, dict) else html.encode(encoding)
    return body, corpus.octets(url).decode(), encoding


def bases() -> Iterator[Row]:
    """A base, seen by a link put behind it."""
    for number, row in enumerate(corpus.load("html/w3lib/w3lib_html_cases.json")["get_base_url"]):
        body, url, encoding = _called(row)
        if b"<noscript" in body or (b"<script" in body and b"</script" not in body):
            continue
        if body.startswith(b"<!--") and b"-->" not in body:
            continue
        url = url or "https://page.example/"
        html = body + b"<a href=x>"
        found = _page(html, url, f"text/html; charset={encoding}").links
        yield _same(f"{number} {row['args'][0]!r}"[:90], found, tuple(_forms(["x"], row["result"] or url)))


def refreshes() -> Iterator[Row]:
    for number, row in enumerate(corpus.load("html/w3lib/w3lib_html_cases.json")["get_meta_refresh"]):
        body, url, encoding = _called(row)
        if (
            b"<noscript" in body
            or (row.get("kwargs") or {}).get("ignore_tags") == []
            or not body.rstrip().endswith(b">")
        ):
            continue
        found = _page(body, url, f"text/html; charset={encoding}").links
        target = row["result"][1]
        yield _same(f"{number} {row['args'][0]!r}"[:90], found, (urls.canonical(target),) if target else ())


# Labels of the corpus that name the same encoding as ours.
def _codec(label: str | None) -> str | None:
    return None if label is None else charsets.codec_of(label, in_page=True)


def _encodings(*kinds: str) -> int:
    """How many rows w3lib has of these kinds."""
    return sum(len(corpus.load("html/w3lib/w3lib_encoding_cases.json")[kind]) for kind in kinds)


def texts() -> Iterator[Row]:
    for number, row in enumerate(corpus.load("html/w3lib/w3lib_encoding_cases.json")["html_to_unicode"]):
        content_type, body = row["args"][0], corpus.octets(row["args"][1])
        encoding, text = row["result"]
        big = encoding.startswith("utf-32") or (encoding == "utf-16-be" and not body.startswith(b"\xfe\xff"))
        if big or b"< meta" in body or (row.get("kwargs") or {}).get("default_encoding"):
            continue
        codec = charsets.charset_of(body, content_type)
        wanted = encoding.replace("utf8", "utf-8")
        yield _same(f"{number} {content_type} {body[:30]!r}", (codec, charsets.text_of(body, codec)), (wanted, text))


def content_types() -> Iterator[Row]:
    """Values whose quotes are whole; with half quotes or spaces round the equals sign w3lib reads none, browsers do."""
    rows = corpus.load("html/w3lib/w3lib_encoding_cases.json")["http_content_type_encoding"]
    for number, row in enumerate(rows):
        value = row["args"][0]
        if re.search(r"charset( =|= |='|=\"utf-8$|=utf-8x?\"|=\"utf-8\"[a-z])", value):
            continue
        yield _same(f"{number} {value!r}", charsets.in_header(value), _codec(row["result"]))


def declarations() -> Iterator[Row]:
    """What a page says of itself; the standard's prescan sees no tag in `< meta` and wants http-equiv=content-type."""
    rows = corpus.load("html/w3lib/w3lib_encoding_cases.json")
    for number, row in enumerate(rows["html_body_declared_encoding"]):
        body = corpus.octets(row["args"][0])
        if re.search(rb"< meta|Fake-|httpequiv|isn't searched", body):
            continue
        yield _same(f"declared {number} {body[:40]!r}", charsets.declared_in(body), _codec(row["result"]))
    for number, row in enumerate(rows["read_bom"]):
        body, wanted = corpus.octets(row["args"][0]), row["result"][0]
        if wanted is None or wanted.startswith("utf-16"):
            yield _same(f"mark {number}", charsets.encoding_of(body, None), wanted or "utf-8")
    for number, row in enumerate(rows["resolve_encoding"]):
        codec = _codec(row["args"][0])
        yield _same(f"label {number}", codec and charsets.reader_of(codec), row["result"])


def sniffing() -> Iterator[Row]:
    """html5lib's: the declaration found, where windows-1252 is also what stands for none."""
    for name in ("tests1.dat", "tests2.dat", "test-yahoo-jp.dat"):
        text = corpus.read(f"html/html5lib-encoding/{name}")
        for number, part in enumerate(re.split(rb"(?:^|\n)#data\n", text)[1:]):
            body, label = part.split(b"\n#encoding\n")
            marked = body.startswith(b"\xef\xbb\xbf")
            found = charsets.encoding_of(body, None) if marked else charsets.declared_in(body) or "cp1252"
            yield judged(f"{name} {number} {body[:40]!r}", found, _codec(label.decode().strip()) or "none")
    body = corpus.read("html/html5lib-encoding/chardet/test_big5.txt")
    text_length = len(charsets.text_of(body, charsets.charset_of(body, "text/plain; charset=big5")))
    yield Row("chardet/test_big5.txt by its label", 0 < text_length < len(body), f"{text_length} characters")


CORPORA = (
    Corpus(
        "scrapy link extractor",
        "html/scrapy/linkextractor_cases.json",
        scrapy,
        held=lambda: len(corpus.load("html/scrapy/linkextractor_cases.json")["cases"]),
        peers="scrapy: its own rows",
        left_out="rows whose options ask for other tags or attributes, or for a sorted query (canonicalize)",
    ),
    Corpus(
        "Heritrix HTML extractor",
        "html/heritrix_html_cases.json",
        heritrix,
        held=lambda: len(corpus.load("html/heritrix_html_cases.json")["cases"]),
        peers="Heritrix: its own rows",
        left_out="pictures, srcset and data- attributes, conditional comments, forms: no pages; a row that disobeys nofollow",
    ),
    Corpus("Heritrix base elements", "html/heritrix_html_cases.json", bases_of_heritrix),
    Corpus("meta robots, X-Robots-Tag, refresh", "html/meta_robots_cases.json", meta_robots),
    Corpus(
        "w3lib base elements",
        "html/w3lib/w3lib_html_cases.json",
        bases,
        held=lambda: len(corpus.load("html/w3lib/w3lib_html_cases.json")["get_base_url"]),
        left_out="noscript, which is meant for who runs no scripts; a script or comment without an end, which hides the link "
        "that would tell",
    ),
    Corpus(
        "w3lib meta refresh",
        "html/w3lib/w3lib_html_cases.json",
        refreshes,
        held=lambda: len(corpus.load("html/w3lib/w3lib_html_cases.json")["get_meta_refresh"]),
        left_out="noscript as above; a tag that never ends, which is no tag by the HTML standard",
    ),
    Corpus(
        "w3lib bytes to text",
        "html/w3lib/w3lib_encoding_cases.json",
        texts,
        held=lambda: _encodings("html_to_unicode"),
        left_out="UTF-32 and unmarked big-endian UTF-16, which browsers do not read; `< meta`, which is no tag; a default of "
        "the caller's",
    ),
    Corpus(
        "w3lib Content-Type",
        "html/w3lib/w3lib_encoding_cases.json",
        content_types,
        held=lambda: _encodings("http_content_type_encoding"),
        left_out="spaces round the equals sign, single or half quotes: w3lib reads no charset there, we do",
    ),
    Corpus(
        "w3lib declarations",
        "html/w3lib/w3lib_encoding_cases.json",
        declarations,
        held=lambda: _encodings("html_body_declared_encoding", "read_bom", "resolve_encoding"),
        left_out="`< meta`, httpequiv and Fake-Content-Type, which declare nothing by the standard; text in front of a meta "
        "element, which hides it from w3lib alone; UTF-32 marks",
    ),
    Corpus(
        "html5lib encoding sniffing",
        "html/html5lib-encoding/tests1.dat",
        sniffing,
        left_out="scripted/tests1.dat, which needs a script run",
    ),
)
