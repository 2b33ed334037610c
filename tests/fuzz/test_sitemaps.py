"""Any bytes as a sitemap: entries that are canonical and dated in the past, within the limits, in bounded time."""

import gzip
import time

from hypothesis import strategies as st

from node import dates, sitemaps
from shared import urls
from tests.fuzz import budget

NOW_MS = 1_800_000_000_000
HERE = "https://example.com/sitemap.xml"
PIECES = [
    *(
        "<urlset>",
        "<sitemapindex>",
        "<rss>",
        "<feed>",
        "<rdf:RDF>",
        "<s:urlset>",
        "</urlset>",
        "<url>",
        "</url>",
        "<url/>",
    ),
    *(
        "<loc>",
        "</loc>",
        "<s:loc>",
        "<lastmod>",
        "</lastmod>",
        "<sitemap>",
        "</sitemap>",
        "<item>",
        "</item>",
        "<link>",
    ),
    *(
        "</link>",
        "<guid>",
        "</guid>",
        "<pubDate>",
        "</pubDate>",
        "<entry>",
        "</entry>",
        "<link href='",
        "'/>",
        "<updated>",
    ),
    *(
        "<source>",
        "</source>",
        "xml:base='",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "<?xml ",
        "?>",
        "<!DOCTYPE x [",
        "]>",
        "<",
    ),
    *(
        ">",
        "'",
        '"',
        "&amp;",
        "&#0;",
        "&#xD800;",
        "&#99999999;",
        "&x;",
        "&",
        "\x00",
        "é",
        "\ud83d",
        " ",
        "\n",
        "/a",
        "//b.c/",
    ),
    *(
        "http://d.e/f",
        "ftp://x/",
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        "9999",
        "Thu, 05 Jan 2017 13:34:51 GMT",
        "image:loc",
    ),
]
markup = st.lists(st.sampled_from(PIECES), max_size=40).map(
    lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass")
)
bodies = (
    st.binary(max_size=300)
    | markup
    | markup.map(lambda body: b"<urlset><url><loc>" + body)
    | markup.map(lambda body: b"<rss><item>" + body)
    | markup.map(lambda body: b"<feed><entry>" + body)
    | st.tuples(st.sampled_from([b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\x1f\x8b"]), markup).map(b"".join)
    | st.tuples(markup, st.integers(0, 200)).map(lambda one: gzip.compress(one[0], mtime=0)[: one[1]])
)
types = st.sampled_from([None, "text/xml", "application/xml; charset=utf-16", "text/plain; charset=iso-2022-jp", "x"])


def read(body: bytes, content_type=None, *, declared=True, urls_max=10, bytes_max=1_000) -> sitemaps.Sitemap | None:
    return sitemaps.read(
        body,
        url=HERE,
        content_type=content_type,
        now_ms=NOW_MS,
        bytes_max=bytes_max,
        urls_max=urls_max,
        declared=declared,
    )


@budget.tried(bodies, types, st.booleans(), share=6)
def test_every_body_gives_canonical_entries_within_the_limits_or_none(body, content_type, declared):
    found = read(body, content_type, declared=declared)
    assert sitemaps.looks_like(body, content_type) in {True, False}
    if found is None:
        return
    entries = found.entries + found.children
    assert len(entries) <= 10
    assert len({entry.url for entry in entries}) == len(entries)
    assert not (found.entries and found.children)
    for entry in entries:
        assert urls.canonical(entry.url) == entry.url
        assert 0 <= entry.changed_ms <= NOW_MS
        assert entry.trusted == (urls.host_of(entry.url) == "example.com")
        assert entry.trusted or not entry.changed_ms
    assert found.fault in {None, "size", "urls", "encoding", "markup"}


@budget.tried(st.lists(st.tuples(st.text(max_size=30), st.booleans()), max_size=8))
def test_what_was_written_well_is_read_whole(names):
    """Any text as a path, as characters or as CDATA, comes back as the link it would be on a page."""
    wanted: dict[str, None] = {}
    parts = []
    for name, raw in names:
        path = "".join(char for char in name if char >= " " and not "\ud800" <= char <= "\udfff").strip()
        link = f"https://example.com/{path}x"
        escaped = link.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        parts.append(f"<url><loc>{f'<![CDATA[{link}]]>' if raw and ']]>' not in link else escaped}</loc></url>")
        wanted[urls.canonical(link)] = None
    found = read(f"<urlset>{''.join(parts)}</urlset>".encode(), bytes_max=100_000)
    assert [entry.url for entry in found.entries] == list(wanted)
    assert found.fault is None


@budget.tried(st.text(max_size=70) | st.lists(st.sampled_from("0123456789-:T+Z., JanFebThu"), max_size=40).map("".join))
def test_any_text_is_a_moment_up_to_now_or_none(text):
    assert 0 <= dates.milliseconds(text, now_ms=NOW_MS) <= NOW_MS


@budget.tried(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=5),
    st.sampled_from(["", "<urlset>", "<rss><item>", "<feed><entry>"]),
    share=0.5,
)
def test_one_piece_repeated_costs_bounded_time(pieces, first):
    piece = "".join(pieces).encode("utf-8", "surrogatepass")
    body = first.encode() + piece * (200_000 // len(piece))
    began_s = time.process_time()
    read(body, urls_max=50_000, bytes_max=10**6)
    assert time.process_time() - began_s < 2.0
