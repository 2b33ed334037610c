"""Any bytes as a page: links that are canonical, a title and flags, in bounded time, and a line that can be written."""

import time

from hypothesis import strategies as st
from selectolax import lexbor

from node import links
from node.sinks import jsonl
from shared import records, urls
from tests.fuzz import budget

URL = "https://example.com/a/b?c"
PIECES = [
    *(
        "<a href=",
        "<A HREF='",
        '"',
        "'",
        ">",
        "</a>",
        "<base href=",
        "<iframe src=",
        "<frame src=",
        "<area href=",
        "<!--",
        "-->",
    ),
    *(
        "<script>",
        "</script>",
        "<style>",
        "<title>",
        "</title>",
        "<textarea>",
        "<svg>",
        "<math>",
        "<template>",
        "<plaintext>",
        "<noscript>",
    ),
    *(
        "<meta name=robots content=",
        "<meta http-equiv=refresh content=",
        "0;url=",
        "nofollow",
        "noindex",
        "none,",
        "<meta charset=",
    ),
    *(
        "/x",
        "?y",
        "#z",
        "//h.example/",
        "http://a.b/",
        "javascript:x",
        "&#xD800;",
        "&amp;",
        "&#0;",
        "&",
        "\x00",
        "é",
        "\ud83d",
        " ",
        "\n",
    ),
    *(
        "<![CDATA[",
        "]]>",
        "<?",
        "<!DOCTYPE",
        "<xmp>",
        "=",
        "/",
        "<",
        "a" * 50,
        "<table>",
        "<form>",
        "<b><i><p>",
        "rel=nofollow ",
    ),
]
markup = st.lists(st.sampled_from(PIECES), max_size=40).map(
    lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass")
)
bodies = (
    st.binary(max_size=300)
    | markup
    | st.tuples(st.sampled_from([b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"]), markup).map(b"".join)
)
types = st.sampled_from(
    [
        None,
        "text/html",
        "text/html; charset=utf-16",
        "text/html; charset=iso-2022-jp",
        "TEXT/HTML;charset=big5",
        "image/png",
        "",
        "application/xhtml+xml",
    ]
)


def extracted(body: bytes, content_type: str | None = "text/html", *, links_max: int = 20) -> links.Page:
    return links.extract(body, content_type=content_type, url=URL, links_max=links_max, token="bot")


@budget.tried(bodies, types, share=6)
def test_every_page_gives_canonical_links_and_a_line_to_write(body, content_type):
    page = extracted(body, content_type)
    assert len(page.links) <= 20
    assert len(set(page.links)) == len(page.links)
    assert all(urls.canonical(link) == link for link in page.links)
    assert page.title is None or 0 < len(page.title) <= links.TITLE_CHARS_MAX
    assert not (page.nofollow and page.links)
    assert page == extracted(body, content_type), "the same page reads the same"
    line = jsonl.PageLine(
        **dict.fromkeys(("redirect", "etag", "last_modified", "content", "truncated", "content_type")),
        url=URL,
        site="example.com",
        node="n1",
        fetched_ms=0,
        status=200,
        bytes=len(body),
        title=page.title,
        links=page.links,
        charset=page.charset,
        nofollow=page.nofollow,
        noindex=page.noindex,
        bad_links=page.bad_links,
    )
    assert records.encode_json(line).count(b"\n") == 0


LINKS = [
    *('<a rel="nofollow" href="/n">', '<a href="/1" href="/2">', '<a rel="noopener" rel="nofollow" href="/3">'),
    *('<a href="/4" rel="external nofollow">', '<a id="i" href="/5?a&amp;b" class="c">', '<area href="/6">'),
    *('<a href="', '<a class="x" href="/u', '<a rel="nofollow" href="/n', '<a data-href="', '<a title="<a href=', '">'),
    *(
        '" href="',
        '" rel="noopener" href="',
        '" rel="nofollow">',
        '" target=_blank>',
        '"/>',
        '" >',
        "' href='",
        'href="/s',
    ),
    *("/a?b=1&amp;c=2", "&amp;amp;", "&#x26;", "&notit;", "\r", "\t", "\f", "\x0b", "\xa0", "\u017f", "<b ", "</a"),
]


@budget.tried(st.lists(st.sampled_from(PIECES + LINKS * 3), max_size=12).map("".join), share=3)
def test_a_link_that_is_read_where_it_stands_reads_as_by_a_tree(text):
    """A name in capitals is left to the tree, and means the same."""
    by_tree = text.replace('href="', 'HREF="')
    assert repr(links.scanned(text, "bot")).lower() == repr(links.scanned(by_tree, "bot")).lower()


@budget.tried(
    st.lists(
        st.tuples(st.sampled_from(["", "/p", "../q?x=1&amp;y=2", "#f", "http://h.example/a b"]), st.booleans()),
        max_size=8,
    )
)
def test_a_page_without_faults_has_the_links_that_its_whole_tree_has(written):
    text = "".join(
        f'<div class="a > b"><p>x<a {"id=i " * odd}href="{href}" title=\'<a href="/t">\'>t</a><!-- <a href="/c"> -->'
        for href, odd in written
    )
    whole = [node.attributes["href"] for node in lexbor.LexborHTMLParser(text).css("a[href]")]
    assert links.scanned(text).addresses == [href or "" for href in whole]


@budget.tried(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5), types, share=0.5)
def test_a_page_of_one_piece_repeated_costs_bounded_time(pieces, content_type):
    piece = "".join(pieces).encode("utf-8", "surrogatepass")
    body = piece * (300_000 // len(piece))
    began_s = time.process_time()
    extracted(body, content_type, links_max=5_000)
    assert time.process_time() - began_s < 5.0


@budget.tried(
    st.lists(
        st.text(max_size=30) | st.sampled_from(["none", "bot: noindex", "unavailable_after: x, nofollow", ":,:"]),
        max_size=4,
    )
)
def test_robots_headers_are_two_flags(values):
    assert set(links.robots_directives(tuple(values), "bot")) <= {True, False}
