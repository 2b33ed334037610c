"""URLs: the URL standard's own tests, host names, and queries in a page's encoding.

A row says what the URL standard makes of an input. What our form makes of that is worked out here by single
characters, without the code under test: no fragment, no user, no root dot, RFC 3986 escapes.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from node import charsets
from shared import errors, urls
from tests import corpus
from tests.conformance.corpora import Corpus, Row

UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
HEX = frozenset("0123456789ABCDEFabcdef")
STANDARD = "wpt-url/urltestdata.json"


def form(url: str, base: str | None = None, *, form: urls.Form = urls.PLAIN, encoding: str = "utf-8") -> str:
    """The canonical URL, or the refusal's reason in angle brackets."""
    try:
        return urls.canonical(url, base, form=form, encoding=encoding)
    except errors.InvalidUrl as error:
        return f"<{error}>"


def plain(text: str) -> str:
    """RFC 3986 6.2.2 by single characters; beside a `%` that begins no escape, escapes of hex digits stay."""
    pieces = re.split(r"(%[0-9A-Fa-f]{2})", text)
    stray = any("%" in piece for piece in pieces[::2])
    out = ""
    for piece in pieces:
        if not re.fullmatch(r"%[0-9A-Fa-f]{2}", piece):
            out += piece
            continue
        char = chr(int(piece[1:], 16))
        out += char if char in UNRESERVED and not (stray and char in HEX) else piece.upper()
    return out


def crawlable(host: str) -> bool:
    """Whether a host can be a name on the network."""
    if host.startswith("["):
        return True
    host = host.removesuffix(".")
    return all(re.fullmatch(r"[a-z0-9_-]{1,63}", label) for label in host.split(".")) and len(host) <= 253


def ours(href: str) -> str:
    """Our form of what the URL standard's parser and serializer give."""
    scheme, _, rest = href.partition("://")
    if scheme not in {"http", "https"}:
        return "<scheme>"
    authority, _, path = rest.partition("#")[0].partition("/")
    host, port = re.fullmatch(r"(?:.*@)?(\[.*\]|[^:]*)((?::\d*)?)", authority, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{scheme}://{host.removesuffix('.')}{port}/{plain(path)}" if crawlable(host) else "<host>"


def rows_of(name: str) -> list[dict[str, Any]]:
    """A file's rows without its comments."""
    return [row for row in corpus.load(name) if not isinstance(row, str)]


def judged(name: str, found: str, wanted: str) -> Row:
    return Row(name, found == wanted, "" if found == wanted else f"{wanted} expected, {found} came")


def _of_web(row: dict[str, Any]) -> bool:
    """A row without a base or with one that a page of the web can have."""
    return not row.get("base") or row["base"].startswith(("http:", "https:"))


def _standard(name: str, wants: Callable[[dict[str, Any]], bool]) -> Iterator[Row]:
    for number, row in enumerate(rows_of(name)):
        if wants(row):
            base = row.get("base")
            label = f"{number} {row['input']!r}" + (f" at {base}" if base else "")
            wanted = "<invalid>" if row.get("failure") else ours(row["href"])
            found = form(row["input"], base)
            if wanted == "<invalid>" and found == "<scheme>" and urls.SCHEME.match(row["input"]):
                found = wanted  # it names another scheme, and is refused by the first reason that holds
            yield judged(label, found, wanted)


def results() -> Iterator[Row]:
    return _standard(STANDARD, lambda row: row.get("protocol") in {"http:", "https:"})


def failures() -> Iterator[Row]:
    """Every failure, those with a base of another scheme among them: the link is dropped."""
    return _standard(STANDARD, lambda row: bool(row.get("failure")))


def other_schemes() -> Iterator[Row]:
    return _standard(STANDARD, lambda row: _of_web(row) and row.get("protocol", "http:") not in {"http:", "https:"})


def extras() -> Iterator[Row]:
    for name in ("ada_extra_urltestdata", "ada_long_urltestdata", "urltestdata-javascript-only"):
        for row in _standard(f"wpt-url/{name}.json", lambda _row: True):
            yield Row(f"{name} {row.name}", row.passed, row.detail)


def _names(name: str) -> Iterator[Row]:
    """Host names as WPT asks for them: within a URL, which must fail, or have that host."""
    for number, row in enumerate(rows_of(f"wpt-url/{name}.json")):
        output = row["output"]
        found = form(f"https://{row['input']}/x")
        label = f"{name} {number} {row['input']!r}"
        if output is None:
            yield Row(label, found == "<invalid>", "" if found == "<invalid>" else f"{found} for no name")
        else:
            yield judged(label, found, ours(f"https://{output}/x"))


def to_ascii() -> Iterator[Row]:
    return _names("toascii")


def idna() -> Iterator[Row]:
    for name in ("IdnaTestV2", "IdnaTestV2-removed"):
        for row in _names(name):
            if not row.name.endswith("''"):  # no host at all: `https:///x` has the host x
                yield row


def dns_lengths() -> Iterator[Row]:
    for number, row in enumerate(rows_of("wpt-url/verifydnslength_tests.json")):
        found = form(row["input"])
        refused = found in {"<invalid>", "<host>"}
        yield Row(f"{number} {row['input'][:60]}", refused is bool(row["failure"]), f"{found}: {row['message']}")


def queries() -> Iterator[Row]:
    for row in rows_of("wpt-url/percent-encoding.json"):
        for label, wanted in row["output"].items():
            codec = charsets.codec_of(label, in_page=True) or label
            found = form(f"https://example.com/?{row['input']}", encoding=codec).partition("?")[2]
            yield judged(f"{row['input']!r} in {label}", found, wanted)


CORPORA = (
    Corpus(
        "WHATWG URL, http(s) results",
        STANDARD,
        results,
        peers="ada 247, w3lib 129, yarl 122, urllib 86",
        note="Our form stands on ada's parser: what is judged is that nothing is lost or merged on the way. 4 hosts "
        "(`http://./`, `http://!$&/` and such) are URLs by the standard and no names that DNS can carry: they are right when "
        "refused as such",
    ),
    Corpus(
        "WHATWG URL, failures",
        STANDARD,
        failures,
        peers="ada 267, w3lib 57, yarl 53",
    ),
    Corpus(
        "WHATWG URL, other schemes",
        STANDARD,
        other_schemes,
        held=lambda: sum(row.get("protocol", "http:") not in {"http:", "https:"} for row in rows_of(STANDARD)),
        left_out="results of other schemes with a base that no page of the web has: not ours to join",
    ),
    Corpus("ada's additions", "wpt-url/ada_extra_urltestdata.json", extras),
    Corpus(
        "host to ASCII (toascii)",
        "wpt-url/toascii.json",
        to_ascii,
        peers="ada 87, yarl 62, encodings.idna 58, idna (uts46) 46",
        note="10 of the names are too long for DNS: right when refused as such",
    ),
    Corpus(
        "host to ASCII (IdnaTestV2)",
        "wpt-url/IdnaTestV2.json",
        idna,
        held=lambda: sum(len(rows_of(f"wpt-url/{name}.json")) for name in ("IdnaTestV2", "IdnaTestV2-removed")),
        note="As above, of names that DNS cannot carry (189 of them)",
        left_out="the empty name, which a URL cannot hold. Not here: psl/idna_test_vectors.txt, an older copy of the "
        "same; setters_tests.json, as there are no setters",
    ),
    Corpus("names that DNS can carry", "wpt-url/verifydnslength_tests.json", dns_lengths),
    Corpus("queries in a page's encoding", "wpt-url/percent-encoding.json", queries),
)
