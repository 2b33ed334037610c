"""Canonical forms of other crawlers, as far as their rows and our profile want the same.

Our profile is the URL standard, no fragment, no user, RFC 3986 escapes: nothing that a server can tell apart is merged.
A row whose expectation goes further is left out by a rule that looks at the row alone, never at what we answer.
"""

import csv
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, unquote_plus

from node import charsets
from shared import urls
from tests import corpus
from tests.conformance.corpora import Corpus, Row
from tests.conformance.urls import form, judged, ours

Wants = Callable[[str, str], bool]


def _query(url: str) -> str:
    return url.partition("#")[0].partition("?")[2]


def _path(url: str) -> str:
    _, slash, path = re.split(r"[?#]", url.partition("//")[2], maxsplit=1)[0].partition("/")
    return slash + path


def _params(query: str) -> list[str]:
    return sorted(part.removesuffix("=") for part in query.split("&") if part and not part.startswith("="))


# What a row wants done that we leave undone, since a server may tell the two apart.
NOT_OURS: dict[str, Wants] = {
    "another scheme or none": lambda url, expected: (
        not re.match(r"\s*https?:", url, re.IGNORECASE) or not expected.startswith(("http://", "https://"))
    ),
    "a host that is a number or no name by today's standard": lambda url, expected: bool(
        re.match(r"https?:/*(?:(?:%2e|[.])+|09)/", url) or (".../" in url and ".../" not in expected)
    ),
    "no host": lambda url, _expected: not url.partition("//")[2].strip("/"),
    "host in Unicode": lambda _url, expected: not expected.isascii(),
    "slashes merged": lambda url, expected: "//" in _path(url) and "//" not in _path(expected),
    "stray % escaped": lambda url, _expected: bool(re.search(r"%(?![0-9A-Fa-f]{2})", url)),
    "characters escaped that browsers leave": lambda url, _expected: bool(re.search(r"[?].*[][^`|]", url)),
    "query sorted or its empty parts dropped": lambda url, expected: (
        "?" in url and _query(url) != _query(expected) and _params(_query(url)) == _params(_query(expected))
    ),
    "empty query dropped": lambda url, _expected: "?" in url and not _query(url),
}


def _within(pairs: list[tuple[str, str]], **more: Any) -> Iterator[Row]:
    for number, (url, expected) in enumerate(pairs):
        if not any(wants(url, expected) for wants in NOT_OURS.values()):
            yield judged(f"{number} {url!r}", form(url, **more), ours(expected))


def _commented(name: str) -> list[list[str]]:
    text = corpus.read(f"canon/{name}").decode()
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return list(csv.reader(lines, skipinitialspace=True))


def weird() -> Iterator[Row]:
    return _within([(row[0], row[1]) for row in _commented("crawler-commons/weirdToNormalizedUrls.csv")])


def broken() -> Iterator[Row]:
    return (judged(url, form(url), "<invalid>") for (url,) in _commented("crawler-commons/invalidUrls.csv"))


def joined() -> Iterator[Row]:
    for number, (link, base, expected) in enumerate(_commented("crawler-commons/url-resolve.csv")):
        yield judged(f"{number} {link} at {base}", form(link, base or None), form(expected))


def nutch() -> Iterator[Row]:
    return _within([(row["input"], row["expected"]) for row in _nutch()["nutch_urlnormalizer_basic"]])


def _nutch() -> dict[str, list[dict[str, str]]]:
    found = corpus.load("canon/nutch/nutch_normalizer_cases.json")
    return {name: rows for name, rows in found.items() if name != "source"}


SESSIONS = urls.Form(session_ids=True)
# A name with a value, as Nutch's rule takes it, that no known server mints: words, lengths between.
_LOOSE_ID = re.compile(
    r"(?i)Bv_SessionID=fassassddsajkl|[?&]sid=xyz\b|_sessionID=(?:824A6C0A13a7e11205wxN28F44E3|qmyrcedt"
    r"|e36902d5bb2d0d922fc24b43)"
)


def sessions() -> Iterator[Row]:
    """Rows that only take session ids off; Nutch's other rules (default pages, slashes) are not ours."""
    for number, (url, expected) in enumerate(_nutch_regex()):
        if re.search(r"(?i)sid=|sessionid=|NewsID=|addressid=", url) and not _LOOSE_ID.search(url):
            yield judged(f"{number} {url}", form(url, form=SESSIONS), form(expected))


def _nutch_regex() -> list[list[str]]:
    text = corpus.read("canon/nutch/regex-normalize-default.test").decode()
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def paths_with_ids() -> Iterator[Row]:
    for path, expected in corpus.load("canon/urlcanon/surt.json")["stripPathSessionId"].items():
        yield judged(path, form(f"http://h{path}", form=SESSIONS), f"http://h{expected}")


def addresses() -> Iterator[Row]:
    for host, address in corpus.load("canon/urlcanon/funky_ipv4.json").items():
        if host != "0000xa":
            yield judged(host, form(f"http://{host}/"), f"http://{address}/" if address else "<invalid>")


def dots() -> Iterator[Row]:
    for path, expected in corpus.load("canon/urlcanon/path_dots.json")["special"].items():
        if "\\" not in path:
            yield judged(path, form(f"http://h{path}"), f"http://h{expected}")


def _text(url: str) -> str:
    """The corpus holds bytes as characters of Latin-1, UTF-8 as a rule."""
    try:
        return url.encode("latin-1").decode(errors="surrogateescape")
    except UnicodeError:
        return url


def browsers() -> Iterator[Row]:
    """What urlcanon says that browsers make of a URL."""
    for url, expected in corpus.load("canon/urlcanon/supplemental_whatwg.json").items():
        if any(NOT_OURS[kind](url, expected) for kind in list(NOT_OURS)[:2]) or "//%" in expected:
            continue
        found, wanted = form(_text(url)), ours(_text(expected))
        yield judged(repr(url), "<host>" if wanted == "<host>" and found == "<invalid>" else found, wanted)


def _goes_further(url: str, expected: str) -> bool:
    """urlcanon's "semantic" form also unescapes reserved characters, merges slashes and sorts queries."""
    escapes = [unquote(escape) for escape in re.findall(r"%[0-9A-Fa-f]{2}", _path(url) + "?" + _query(url))]
    return (
        any(char != "%" and not re.fullmatch(r"[A-Za-z0-9._~-]", char) and char.isascii() for char in escapes)
        or "%25" in url
        or "\\" in url  # merged with the slash beside it
        or bool(re.search("[\udc80-\udcff]", url))  # bytes that are no text
        or not re.fullmatch(r"https?://[a-z0-9.:-]+/.*", expected, re.DOTALL)
    )


def semantic() -> Iterator[Row]:
    pairs = [
        (_text(url), _text(expected)) for url, expected in corpus.load("canon/urlcanon/semantic_precise.json").items()
    ]
    return _within([pair for pair in pairs if not _goes_further(*pair)])


def idempotent() -> Iterator[Row]:
    inputs = list(corpus.load("canon/urlcanon/idempotence.json"))
    inputs += list(corpus.load("canon/urlcanon/semantic_precise.json"))
    for number, url in enumerate(dict.fromkeys(inputs)):
        once = form(url)
        twice = once if once.startswith("<") else form(once)
        yield judged(f"{number} {url!r}", twice, once)


def real() -> Iterator[Row]:
    """48,010 URLs of the web: what is refused is no URL, and the form of a form is itself; a row for each thousand."""
    lines = corpus.read("domains/ada-kasztp-urls.txt").decode("utf-8-sig").splitlines()
    for start in range(0, len(lines), 1_000):
        wrong = []
        for url in lines[start : start + 1_000]:
            once = form(url)
            if once.startswith("<"):
                wrong += [] if url.startswith('https://"') or url == "https://" else [url]
            elif form(once) != once:
                wrong.append(url)
        yield Row(f"lines {start + 1} and on", not wrong, ", ".join(wrong[:3]))


def _url_of(argument: str | dict[str, str], encoding: str) -> str:
    return corpus.octets(argument).decode(encoding) if isinstance(argument, dict) else argument


W3LIB = ("canonicalize_url", "safe_url_string", "safe_download_url")


def w3lib() -> Iterator[Row]:
    """`canonicalize_url` and `safe_url_string`: rows of one URL in one encoding, without other options."""
    data = corpus.load("canon/w3lib/w3lib_url_cases.json")
    for kind in W3LIB:
        for number, row in enumerate(data[kind]):
            options = row.get("kwargs") or {}
            if len(row["args"]) > 1 or not isinstance(row["args"][0], str | dict) or set(options) - {"encoding"}:
                continue
            label = options.get("encoding", "utf-8")
            try:
                url = _url_of(row["args"][0], label)
            except UnicodeDecodeError:
                continue
            name = f"{kind} {number} {url!r}"
            found = form(url, encoding=charsets.codec_of(label, in_page=True) or label)
            if "result" not in row or row["result"] is None:
                yield Row(name, found.startswith("<"), f"{found} where w3lib raises")
            elif not _w3lib_differs(url, row["result"], label):
                yield judged(name, found, ours(row["result"]))


def _form_params(query: str) -> list[str]:
    return sorted(unquote_plus(part).removesuffix("=") for part in query.split("&") if part)


def _has(url: str, encoding: str) -> bool:
    """Whether an encoding has all of a URL's characters."""
    try:
        url.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


# Beside the kinds above: what w3lib wants that the URL standard does not.
W3LIB_ONLY: dict[str, Wants] = {
    "default port kept": lambda _url, expected: bool(re.search(r":(?:80|443)(?:/|\Z)", expected)),
    "query sorted and written as a form writes it": lambda url, expected: (
        ("&" in url or "%2C4=" in expected)
        and _query(url) != _query(expected)
        and _form_params(_query(url)) == _form_params(_query(expected))
    ),
    "backslash in a query and brackets in a path escaped": lambda url, _expected: (
        "\\" in _query(url) or bool(re.search(r"[][]", _path(url)))
    ),
    "comma unescaped": lambda url, _expected: "%2c" in _path(url),
    "brackets round a name dropped": lambda url, expected: "//[" in url and "[" not in expected,
}


def _w3lib_differs(url: str, expected: str, encoding: str) -> bool:
    """`encoding` lacks a character: w3lib falls back to UTF-8, browsers send a character reference."""
    kinds = (*NOT_OURS.values(), *W3LIB_ONLY.values())
    return not _has(url, encoding) or any(wants(url, expected) for wants in kinds)


CORPORA = (
    Corpus(
        "crawler-commons normalizer",
        "canon/crawler-commons/weirdToNormalizedUrls.csv",
        weird,
        held=lambda: len(_commented("crawler-commons/weirdToNormalizedUrls.csv")),
        left_out="rows that sort the query or drop its empty parts, merge slashes, escape a stray % or what browsers leave, "
        "drop an empty query, or are of other schemes: a server may tell such URLs apart",
    ),
    Corpus("crawler-commons invalid URLs", "canon/crawler-commons/invalidUrls.csv", broken),
    Corpus("crawler-commons resolver", "canon/crawler-commons/url-resolve.csv", joined),
    Corpus(
        "Nutch basic normalizer",
        "canon/nutch/nutch_normalizer_cases.json",
        nutch,
        held=lambda: sum(map(len, _nutch().values())),
        left_out="rows of other schemes, that merge slashes, escape a stray % or what browsers leave, or want hosts in "
        "Unicode; and the query normalizer's, which sorts",
    ),
    Corpus(
        "Nutch session ids",
        "canon/nutch/regex-normalize-default.test",
        sessions,
        held=lambda: len(_nutch_regex()),
        left_out="6 ids that no known server mints (`sid=xyz`), which Nutch drops and we keep; default pages, merged "
        "slashes and ampersands: other rules of Nutch",
    ),
    Corpus(
        "session ids in paths",
        "canon/urlcanon/surt.json",
        paths_with_ids,
        left_out="the file's other pairs, which are keys of indexes and no URLs",
    ),
    Corpus(
        "odd IPv4 addresses",
        "canon/urlcanon/funky_ipv4.json",
        addresses,
        held=lambda: len(corpus.load("canon/urlcanon/funky_ipv4.json")),
        left_out="0000xa, which is a name by the URL standard",
    ),
    Corpus(
        "dots in paths",
        "canon/urlcanon/path_dots.json",
        dots,
        held=lambda: len(corpus.load("canon/urlcanon/path_dots.json")["special"]),
        left_out="those with backslashes, which are slashes in a URL of the web; paths of other schemes",
    ),
    Corpus(
        "urlcanon, as browsers",
        "canon/urlcanon/supplemental_whatwg.json",
        browsers,
        held=lambda: len(corpus.load("canon/urlcanon/supplemental_whatwg.json")),
        left_out="other schemes, and hosts (09, dots alone, a lone %) of which the standard has changed its mind",
    ),
    Corpus(
        "urlcanon, semantic",
        "canon/urlcanon/semantic_precise.json",
        semantic,
        held=lambda: len(corpus.load("canon/urlcanon/semantic_precise.json")),
        left_out="rows that unescape reserved characters, escape a stray %, merge slashes or sort the query, and other "
        "schemes; aggressive.json (www., https, case of paths, index pages) is what we never do",
    ),
    Corpus("idempotent forms", "canon/urlcanon/idempotence.json", idempotent),
    Corpus("real URLs", "domains/ada-kasztp-urls.txt", real),
    Corpus(
        "w3lib",
        "canon/w3lib/w3lib_url_cases.json",
        w3lib,
        held=lambda: sum(len(corpus.load("canon/w3lib/w3lib_url_cases.json")[kind]) for kind in W3LIB),
        peers="w3lib: its own rows",
        left_out="rows that sort the query, keep a default port or escape what browsers leave, options other than the "
        "encoding, and encodings that lack a character (w3lib falls back to UTF-8, browsers send a reference)",
    ),
)
