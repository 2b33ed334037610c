"""Links, title, charset and meta robots of a page, whatever its bytes; one bad link never costs the others."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node import charsets, links
from shared import errors, urls
from tests import corpus

URL = "https://shop.example/a/b.html"


def page(
    html: str | bytes, *, content_type: str | None = "text/html; charset=utf-8", links_max: int = 1000
) -> links.Page:
    body = html.encode() if isinstance(html, str) else html
    return links.extract(body, content_type=content_type, url=URL, links_max=links_max, token="OurBot")


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<a href=c.html>x</a>", ["/a/c.html"]),
        ("<A HREF = '/c' >x", ["/c"]),
        ("<a title='<a href=no>' href=yes>", ["/a/yes"]),
        ("<a\n\thref\n=\n/c\n>", ["/c"]),
        ("<a/href=/c>", ["/c"]),
        ("<a href=/c/>", ["/c/"]),
        ("<a href='/c?a=1&copy=2&amp;b=3&#38;d'>", ["/c?a=1&copy=2&b=3&d"]),
        ("<a href='/one'><a href='/two'><a href='/one'>", ["/one", "/two"]),
        ("<a href='/one#x'><a href='/one#y'>", ["/one"]),
        ("<a href='#top'><a href=''><a href>", []),
        ("<a href='mailto:x@y.example'><a href='javascript:void(0)'><a href=' DATA:text/html,x'><a href='tel:1'>", []),
        ("<area href=/map><iframe src=/in></iframe><frame src=/fr><a href=/z>", ["/map", "/in", "/fr", "/z"]),
        ("<iframe src=/in><a href=/text></iframe><a href=/z>", ["/in", "/z"]),
        ("<a rel='x NoFollow' href=/no><a rel=nofollower href=/yes>", ["/yes"]),
        ("<!-- <a href=/no> --><a href=/yes>", ["/yes"]),
        ("<!--><a href=/yes>-->", ["/yes"]),
        ("<!---><a href=/yes>-->", ["/yes"]),
        ("<!-- --!><a href=/yes>", ["/yes"]),
        ("<!-- - -- <a href=/no>", []),
        ("<script>'<a href=/no>'</script ><a href=/yes>", ["/yes"]),
        ("<script><a href=/no></scripty></SCRIPT\n><a href=/yes>", ["/yes"]),
        ("<style><a href=/no></style><textarea><a href=/no></textarea><xmp><a href=/no></xmp><a href=/yes>", ["/yes"]),
        ("<title><a href=/no></title><a href=/yes>", ["/yes"]),
        ("<noscript><a href=/yes></noscript>", ["/yes"]),
        ("<article href=/no><abbr href=/no><link href=/no><img src=/no>", []),
        ("a < b <a href=/yes> </ x> <> <1> <a href=/more>", ["/yes", "/more"]),
        ("<?php <a href=/no> ?><!DOCTYPE html><a href=/yes>", ["/yes"]),
        ("<div title=\"it's\"><p class=don't><a href=/yes>", ["/yes"]),
        ("<a href=/yes", []),
        ("<a href='/no", []),
        ("<base href='/root/'><base href='/later/'><a href=c>", ["/root/c"]),
        ("<base target=x><base href='/root/'><a href=c>", ["/root/c"]),
        ("<base href='javascript:x'><a href=c>", ["/a/c"]),
        ("<base href='http://['><a href=c>", ["/a/c"]),
        ("<meta http-equiv=Refresh content='0; URL=/next'><a href=/z>", ["/next", "/z"]),
        ("<meta http-equiv=refresh content=\"1;url='/next' x\">", ["/next"]),
        ("<meta http-equiv=refresh content='.1;URL=/next'>", ["/next"]),
        ("<meta http-equiv=refresh content='5'><meta http-equiv=refresh content='٥; url=/no'>", []),
        ("<meta http-equiv=content-type content='0; url=/no'>", []),
    ],
)
def test_the_links_of_a_page_are(html: str, expected: list[str]) -> None:
    assert list(page(html).links) == [urls.canonical(link, URL) for link in expected]


def test_other_sites_and_schemes_of_the_web_are_links_too() -> None:
    found = page("<a href='//other.example/x'><a href='HTTP://Third.example:80'>").links
    assert found == ("https://other.example/x", "http://third.example/")


def test_a_bad_link_is_counted_and_the_page_kept() -> None:
    found = page("<a href='http://['>bad</a><a href='http://a b/'>bad</a><a href='http://h:99999/'>bad</a><a href=ok>")
    assert (found.links, found.bad_links) == (("https://shop.example/a/ok",), 3)


def test_a_page_gives_at_most_so_many_links() -> None:
    found = page("".join(f"<a href={number}>" for number in range(50)), links_max=7)
    assert len(found.links) == 7


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title>  Two\n\t words </title>", "Two words"),
        ("<title>a &amp; b</title><title>second</title>", "a & b"),
        ("<title></title>", None),
        ("<p>none</p>", None),
        ("<title>" + "x" * 5000 + "</title>", "x" * links.TITLE_CHARS_MAX),
        ("<title><b>as written</b></title>", "<b>as written</b>"),
    ],
)
def test_a_title_is_collapsed_text(html: str, title: str | None) -> None:
    assert page(html).title == title


@pytest.mark.parametrize(
    ("content", "noindex", "nofollow"),
    [
        ("noindex, NoFollow", True, True),
        ("none", True, True),
        ("all", False, False),
        ("index,nofollow", False, True),
        ("nofollowing", False, False),
    ],
)
@pytest.mark.parametrize("name", ["robots", "ROBOTS", "ourbot"])
def test_meta_robots_for_all_or_for_us_is_honoured(name: str, content: str, noindex: bool, nofollow: bool) -> None:
    found = page(f"<meta name='{name}' content='{content}'><a href=/c>")
    assert (found.noindex, found.nofollow, bool(found.links)) == (noindex, nofollow, not nofollow)


def test_meta_robots_for_another_crawler_is_not_ours() -> None:
    assert page("<meta name=otherbot content=none><a href=/c>").links


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), (False, False)),
        (("noindex",), (True, False)),
        (("otherbot: none",), (False, False)),
        (("otherbot: noindex, nofollow",), (False, False)),
        (("ourbot: nofollow",), (False, True)),
        (("unavailable_after: 25 Jun 2010 15:00:00 PST, noindex",), (True, False)),
        (("otherbot: none", "nofollow"), (False, True)),
    ],
)
def test_x_robots_tag_counts_for_all_or_for_us(values: tuple[str, ...], expected: tuple[bool, bool]) -> None:
    assert links.robots_directives(values, "OurBot") == expected


@pytest.mark.parametrize(
    ("content_type", "body", "read"),
    [
        ("text/html", b"<a href=/c>", True),
        ("application/xhtml+xml; charset=utf-8", b"<a href=/c>", True),
        (None, b"<a href=/c>", True),
        (None, "<a href=/c>".encode("utf-16"), True),
        ("text/plain", b"<a href=/c>", False),
        ("image/png", b"<a href=/c>", False),
        ("application/pdf", b"%PDF <a href=/c>", False),
        (None, b"\x89PNG\x00\x00<a href=/c>", False),
    ],
)
def test_only_html_is_read_for_links(content_type: str | None, body: bytes, read: bool) -> None:
    assert bool(page(body, content_type=content_type).links) is read


@pytest.mark.parametrize(
    ("content_type", "body", "charset"),
    [
        ("text/html; charset=koi8-r", b"\xef\xbb\xbfx", "utf-8"),
        ("text/html; charset=KOI8-R", b"<meta charset=utf-8>", "koi8-r"),
        ("text/html; charset=nonsense", b"<meta charset=windows-1251>", "cp1251"),
        ("text/html", b"<meta charset=utf-16le>", "utf-8"),
        ("text/html", b"<meta charset=utf-7>caf\xc3\xa9", "utf-8"),
        ("text/html", b"caf\xe9!", "cp1252"),
        ("text/html", "caf\u00e9".encode()[:-1], "utf-8"),
        ("text/html", b" " * 1024 + b"<meta charset=windows-1251>", "utf-8"),
        ("text/html", b"<!-- <meta charset=koi8-r> --><meta charset=shift_jis>", "cp932"),
        ("text/html; charset=rot13", b"x", "utf-8"),
        ("text/html; charset=idna", b"x", "utf-8"),
        ("text/html; charset=undefined", b"x", "utf-8"),
    ],
)
def test_a_charset_is_found_as_browsers_do(content_type: str, body: bytes, charset: str) -> None:
    assert charsets.charset_of(body, content_type) == charset


@given(
    st.binary(max_size=300),
    st.sampled_from([None, "text/html", "text/html; charset=utf-16", "text/html; charset=iso-2022-jp"]),
)
def test_no_body_raises(body: bytes, content_type: str | None) -> None:
    found = page(b"<" + body, content_type=content_type)
    assert all(link.startswith(("http://", "https://")) for link in found.links)


@given(st.text(max_size=40))
def test_no_charset_label_raises(label: str) -> None:
    page(f"<meta charset='{label}'>x", content_type=f"text/html; charset={label}")


PIECES = [
    "<a href=/x>",
    "<a href='",
    '<a href="',
    "<b id=1><p>",
    "<!--",
    "-->",
    "<script>",
    "</script>",
    "<title>",
    "'",
    '"',
    ">",
    "=",
    "</a>",
    "text",
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_a_link_behind_any_closed_muddle_is_still_found(pieces: list[str]) -> None:
    """Everything that could swallow the link is closed before it."""
    muddle = "".join(pieces) + "'\"></script></title>--><!-- -->'\"></script></title><i>"
    assert "https://shop.example/last" in page(muddle + "<a href=/last>").links


@pytest.mark.parametrize(
    "html",
    [
        "".join(f"<b id={number}><p>" for number in range(30_000)),
        "<div>" * 200_000,
        "<a " + " ".join(f"a{number}=1" for number in range(200_000)) + ">",
        "<a " * 200_000,
        "<a href='" * 100_000,
        "<!--" * 200_000,
        "<meta " * 100_000,
        "<title>" * 100_000,
        "<a href=x>" * 200_000,
    ],
    ids=lambda html: html[:12],
)
def test_time_is_linear_in_the_page_whatever_it_holds(html: str) -> None:
    """A tree built of the whole page takes seconds to hours, or gigabytes, for most of these."""
    start = time.process_time()
    page(html)
    assert time.process_time() - start < 2.0


def test_scrapy_pages_give_the_links_that_scrapy_finds() -> None:
    """Rows without options of scrapy's own, nofollow left out; scrapy skips .jpg by its name, we by its type."""
    judged = 0
    for row in corpus.load("html/scrapy/linkextractor_cases.json")["cases"]:
        if row["options"] or row["test"].endswith("test_ignored_extensions"):
            continue
        body = row["body"]
        octets = corpus.octets(body) if "b64" in body else body["text"].encode(row["encoding"] or "utf-8")
        found = links.extract(
            octets, content_type=f"text/html; charset={row['encoding']}", url=row["url"], links_max=99
        )
        wanted = []
        for link in row["links"]:
            try:
                wanted.append(urls.canonical(link["url"]))
            except errors.InvalidUrl:
                continue
        wanted = [link for link, row_link in zip(wanted, row["links"], strict=False) if not row_link["nofollow"]]
        assert list(found.links) == list(dict.fromkeys(wanted)), row["test"]
        judged += 1
    assert judged >= 10


def test_meta_robots_rows_agree() -> None:
    data = corpus.load("html/meta_robots_cases.json")
    for row in data["cases"]:
        found = page(row["html"])
        assert (found.noindex, found.nofollow) == (row["noindex"], row["nofollow"]), row
    for row in data["x_robots_tag"]["cases"]:
        assert links.robots_directives(tuple(row["headers"])) == (row["noindex"], row["nofollow"]), row
    for html in data["meta_refresh"]["html"]:
        assert page(html).links == (data["meta_refresh"]["expected"],)


def test_encoding_rows_agree_but_for_utf32_and_a_meta_that_is_none() -> None:
    """Browsers know no UTF-32, take UTF-16 without a mark for little-endian, see no tag in "< meta", and search
    the body for a meta element too; "ascii" as a wanted default is an option of w3lib's own.
    """
    data = corpus.load("html/w3lib/w3lib_encoding_cases.json")
    wrong = 0
    for row in data["html_to_unicode"]:
        content_type, body = row["args"][0], corpus.octets(row["args"][1])
        codec = charsets.charset_of(body, content_type)
        wrong += (codec.replace("utf-8", "utf8"), charsets.text_of(body, codec)) != (
            row["result"][0].replace("utf-8", "utf8"),
            row["result"][1],
        )
    assert wrong == 8
    declared = [
        (charsets.declared_in(corpus.octets(row["args"][0])), row["result"])
        for row in data["html_body_declared_encoding"]
    ]
    assert sum(found != wanted for found, wanted in declared) == 4
    for row in data["resolve_encoding"]:
        assert charsets.codec_of(row["args"][0], in_page=True) == row["result"]


def test_content_type_rows_agree_where_the_quotes_are_whole() -> None:
    """Seven rows with spaces round the equals sign, single or half quotes are read here, as browsers do."""
    rows = corpus.load("html/w3lib/w3lib_encoding_cases.json")["http_content_type_encoding"]
    differ = [row["args"][0] for row in rows if charsets.in_header(row["args"][0]) != row["result"]]
    assert len(rows) == 29
    assert len(differ) <= 7
    assert all(row["result"] is None for row in rows if row["args"][0] in differ)


def test_base_rows_agree_but_for_noscript() -> None:
    """w3lib looks away from noscript; a crawler runs no scripts, so what stands there is meant for it. A script without an end swallows
    the link that this test adds.
    """
    for row in corpus.load("html/w3lib/w3lib_html_cases.json")["get_base_url"]:
        html = corpus.octets(row["args"][0]).decode()
        if (
            "<noscript" in html
            or ("<script" in html and "</script" not in html)
            or len(row["args"]) < 2
            or row.get("kwargs")
        ):
            continue
        try:
            wanted = urls.canonical("x", row["result"])
        except errors.InvalidUrl:
            continue
        found = links.extract(
            (html + "<a href=x>").encode(),
            content_type="text/html",
            url=corpus.octets(row["args"][1]).decode(),
            links_max=99,
        )
        assert found.links[-1:] == (wanted,), row
