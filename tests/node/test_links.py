"""Links, title, charset and meta robots of a page, whatever its bytes; one bad link never costs the others."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node import charsets, links
from shared import urls

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
        ("text/html", b" " * 1024 + b"<meta charset=windows-1251>", "cp1251"),
        ("text/html", b" " * charsets.DECLARED_BYTES + b"<meta charset=windows-1251>", "utf-8"),
        ("text/html", b"<meta charset=nonsense><meta charset=windows-1251>", "cp1251"),
        ("text/html", b"<meta http-equiv=Content-Type content='text/html; charset=windows-1251'>", "cp1251"),
        ("text/html", b"<meta name=Content-Type content='text/html; charset=windows-1251'>", "utf-8"),
        ("text/html", b"<p title='<meta charset=windows-1251>'>", "utf-8"),
        ("text/html", b"<meta charset='windows-1251", "utf-8"),
        ("text/html", b"<meta charset=windows-1251 charset=koi8-r>", "cp1251"),
        ("text/html", b"<!--><meta charset=windows-1251>-->", "cp1251"),
        ("text/html", b"<?xml version='1.0' encoding='windows-1251'?><p>", "cp1251"),
        ("text/html", b"<meta charset=gb2312>", "gb18030"),
        ("text/html; charset=gbk", b"", "gb18030"),
        ("text/html", b"<meta charset='koi8-r!'>", "utf-8"),
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


def test_a_query_is_written_in_the_encoding_of_its_page() -> None:
    html = '<a href="/search?q=привет&p=/п"><a href="/п?ש"><base href="/б/?é"><a href="">'
    found = page(html.encode("cp1251", "xmlcharrefreplace"), content_type="text/html; charset=windows-1251")
    assert found.links == (
        "https://shop.example/search?q=%EF%F0%E8%E2%E5%F2&p=/%EF",
        "https://shop.example/%D0%BF?%26%231513%3B",
    )
    assert page("<a href='?ш'>".encode("utf-16"), content_type=None).links == ("https://shop.example/a/b.html?%D1%88",)
    chinese = "<meta charset=gbk><a href='?é'><a href='?中'><a href='?ש'>".encode("gb18030")
    assert page(chinese, content_type="text/html").links == (
        "https://shop.example/a/b.html?%A8%A6",
        "https://shop.example/a/b.html?%D6%D0",
        "https://shop.example/a/b.html?%26%231513%3B",
    )


def test_links_come_in_the_operators_form() -> None:
    form = urls.Form(drop_params=frozenset({"utm_source"}), aliases={"www.shop.example": "shop.example"})
    html = (
        b"<link rel=canonical href='//www.shop.example/c?utm_source=x'><a href='//www.shop.example/a?utm_source=y&b'>"
    )
    found = links.extract(html, content_type="text/html", url=URL, links_max=9, form=form)
    assert (found.links, found.canonical) == (("https://shop.example/a?b",), "https://shop.example/c")


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<link rel=canonical href=/c#f>", "/c"),
        ("<LINK HREF='/c' REL='x CANONICAL y'>", "/c"),
        ("<link rel=canonical href='http://['><link rel=canonical href=/d><link rel=canonical href=/e>", "/d"),
        ("<base href=/base/><link rel=canonical href=c>", "/base/c"),
        ("<meta name=robots content=none><link rel=canonical href=/c>", "/c"),
        ("<link rel=stylesheet href=/canonical><link rel=alternate href=/x>", None),
        ("<link rel=canonical><link rel=canonical href><a rel=canonical href=/no>", None),
        ("<link rel=canonical href=mailto:x@y.example>", None),
        ("<!-- <link rel=canonical href=/c> --><script><link rel=canonical href=/c></script>", None),
    ],
)
def test_which_page_a_page_says_it_is(html: str, expected: str | None) -> None:
    assert page(html).canonical == (expected and urls.canonical(expected, URL))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("</c>; rel=canonical",), "/c"),
        (('<https://shop.example/c,d;e>; title="a, <b>; rel=x"; REL="next Canonical"',), "/c,d;e"),
        (('</n>; rel="next", </c>; rel="canonical"',), "/c"),
        (("</n>; rel=next", "</c> ; rel = canonical"), "/c"),
        (("<http://[>; rel=canonical, </c>; rel=canonical",), "/c"),
        (("</first>; rel=next; rel=canonical",), None),
        (('</c>; rel=canonical; anchor="/other"',), None),
        (("</c>; rev=canonical", "/c; rel=canonical", "<", "", "<>;;;", '</c>; rel="canonical'), None),
    ],
)
def test_which_page_a_link_header_says_it_is(values: tuple[str, ...], expected: str | None) -> None:
    assert links.canonical_header(values, URL) == (expected and urls.canonical(expected, URL))


@pytest.mark.parametrize("value", ["<" * 60_000, "<>;" * 20_000, '<>;"' * 15_000, "<a>;" + "x" * 60_000, "<>" * 30_000])
def test_a_hostile_link_header_costs_no_more_than_its_length(value: str) -> None:
    start = time.process_time()
    links.canonical_header((value, value + "; rel=canonical"), URL)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    "piece", [b"<meta ", b"<meta charset", b"<!--", b"<x '", b"<", b"<meta charset=x>", b"</a b=", b"<!", b"charset="]
)
def test_time_to_find_a_charset_is_linear_in_the_page(piece: bytes) -> None:
    start = time.process_time()
    for _ in range(20):
        charsets.declared_in(piece * (1_000_000 // len(piece)))
    assert time.process_time() - start < 1.0


def test_one_long_label_costs_its_link_alone() -> None:
    name = "a123456789012345678901234567890123456789012345678901234567890123"
    found = page(f"<a href=/one><a href='http://{name}/'><a href=' h\nt\r\ntp://ex\r\nample.com\t '>")
    assert found.links == ("https://shop.example/one", "http://example.com/")
    assert found.bad_links == 1
