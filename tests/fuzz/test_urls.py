"""URLs from anywhere: one canonical form or one reason, and what is made of the form can be put together again."""

import contextlib
import time

from hypothesis import strategies as st

from node import charsets, fetch, robots
from shared import config, errors, sites, urls
from tests.fuzz import budget

REASONS = {"too_long", "invalid", "scheme", "host"}
BASES = (
    None,
    "https://example.com/a/b?c",
    "http://[2001:db8::1]:8080/x/",
    "http://127.0.0.1/",
    "https://a.b.c.co.uk/%7e/./x",
)
PIECES = [
    *("http:", "https:", "HTTP:", "ftp:", "javascript:", "data:", "//", "/", "\\", "///", "@", ":", "?", "#", "&", "="),
    *("example.com", "EXAMPLE.com.", "www.", "co.uk", "..", ".", "%2e", "%2E%2e", "%", "%%", "%2", "%zz", "%00", "%7E"),
    *("127.0.0.1", "0x7f.1", "2130706433", "256.1.1.1", "[::1]", "[", "]", "[::ffff:1.2.3.4]", "1.2.3", "localhost"),
    *(
        "xn--",
        "xn--bcher-kva.de",
        "bücher.de",
        "ß",
        "\u200d",
        "\u202e",
        "İ",
        "。",
        "a_b.",
        "-",
        "~",
        "user:pw@",
        ":80",
        ":0",
    ),
    *(
        ":443",
        ":65535",
        ":65536",
        ":99999",
        "\t",
        "\n",
        " ",
        "\x00",
        "\ud800",
        "é",
        "日本",
        "+",
        ";",
        "*",
        "'",
        '"',
        "<",
        "|",
    ),
]
raw_urls = (
    st.text(max_size=60)
    | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
    | st.lists(st.sampled_from(PIECES), max_size=12).map(lambda parts: "http://" + "".join(parts))
    | st.tuples(st.sampled_from(["http://a.example.com/", "https://x.co.uk/?"]), st.text(max_size=60)).map("".join)
)
PLACES = sites.Sites(("github.io",))


def form(url: str, base: str | None = None, *, by: urls.Form = urls.PLAIN, encoding: str = "utf-8") -> str | None:
    """The canonical form, or None for a refusal, whose reason must be one of four."""
    try:
        return urls.canonical(url, base, form=by, encoding=encoding)
    except errors.InvalidUrl as error:
        reason = str(error)
    assert reason in REASONS
    return None


@budget.tried(raw_urls, st.sampled_from(BASES), share=4)
def test_a_form_is_its_own_form_and_no_library_changes_it(raw, base):
    url = form(raw, base)
    if url is None:
        return
    assert form(url) == url
    assert form(url, base) == url
    assert url.isascii() and url.isprintable() and " " not in url
    place, fields = fetch._asked(urls.origin_of(url), fields=b"")
    assert fields == b"Host: %s\r\n" % url.split("/")[2].encode()
    assert place.host.strip("[]") == urls.host_of(url).strip("[]")


@budget.tried(raw_urls, st.sampled_from(BASES), share=4)
def test_the_parts_of_a_form_make_it_up(raw, base):
    url = form(raw, base)
    if url is None:
        return
    assert urls.origin_of(url) + urls.path_of(url) == url
    assert robots.path_of(url) == urls.path_of(url)
    host = urls.host_of(url)
    assert form(f"http://{host}/") == f"http://{host}/"
    assert 0 <= urls.digest(url) < 2**63
    assert urls.refusal(url, config.Limits()) in {None, "too_long", "too_deep", "repeats"}
    site = PLACES.site_of(url)
    assert host == site or host.endswith(f".{site}")
    assert PLACES.site_of_host(site) == site, "a site is its own site"
    for key in (site, host, "example.com", "[::1]"):
        assert urls.expand(urls.compact(url, key), key) == url


SESSION = "0123456789abcdefghijklemopqrstuv"
session_urls = st.lists(
    st.sampled_from(
        [*PIECES, f";jsessionid={SESSION}", f"&sid={SESSION}", "/(S(lit3py55t21z5v55vlm25s55))", "&a=%", "%73id="]
    ),
    max_size=12,
).map(lambda parts: "http://www.example.com/" + "".join(parts))
forms = st.builds(
    urls.Form,
    drop_params=st.frozensets(st.sampled_from(["a", "utm_source", "", "é", "+", " "]), max_size=3),
    session_ids=st.booleans(),
    aliases=st.sampled_from([{}, {"www.example.com": "example.com", "localhost": "[::1]"}]),
)
encodings = st.sampled_from(sorted({*charsets._CODECS.values(), "gb18030", "utf-16-le", "utf-16-be"}))


@budget.tried(raw_urls | session_urls, forms, encodings, share=2)
def test_a_form_is_its_own_form_whatever_the_operator_and_the_page_want(raw, by, encoding):
    url = form(raw, by=by, encoding=encoding)
    if url is None:
        return
    assert url.isascii() and url.isprintable() and " " not in url
    assert form(url, by=by) == url
    assert form(url, by=by, encoding=encoding) == url


USUAL = [
    *(
        "a",
        "b/",
        "x.html",
        "?q=1",
        "#f",
        "../",
        "./",
        "/./",
        "//h.example",
        "https://H.example/",
        "http://h.example:8080",
    ),
    *("https://h.example:99999/", "%20", "%C3", "%41", "%2D", "%2E", "%25", "a=1&b=2", "'", "utm_source=x", "h:1/"),
]
links = st.lists(st.sampled_from(USUAL * 3 + PIECES), max_size=6).map("".join) | st.text(
    "ab./?#:%2e&=_-~'", max_size=12
)
folders = st.sampled_from(
    [
        *(base for base in BASES if base),
        "https://a.example/d/e/f%2?x=../",
        f"https://a.example/;jsessionid={SESSION}/x",
        "http://a.example",
    ]
)


@budget.tried(links, folders, forms | st.just(urls.PLAIN), encodings, share=4)
def test_a_link_that_is_put_together_is_what_the_parser_makes_of_it(raw, base, by, encoding):
    page = urls.Page(urls.canonical(base), form=by, encoding=encoding)
    try:
        put_together = page.canonical(raw)
    except errors.InvalidUrl:
        put_together = None
    assert put_together == form(raw, urls.canonical(base), by=by, encoding=encoding)


@budget.tried(st.sampled_from(PIECES), st.sampled_from(PIECES), st.sampled_from(BASES))
def test_the_longest_input_takes_no_longer_than_its_length(one, other, base):
    raw = ("http://example.com/" + (one + other) * 40_000)[: urls.INPUT_CHARS_MAX]
    began_s = time.process_time()
    form(raw, base)
    with contextlib.suppress(errors.InvalidUrl):
        urls.Page("https://example.com/").canonical(raw.removeprefix("http://example.com"))
    assert time.process_time() - began_s < 1.0


@budget.tried(st.binary(max_size=80) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_whatever_the_store_holds_expands_to_something_that_is_checked(code):
    """A damaged code becomes another URL, which may be refused, or none: never a crash further on."""
    try:
        url = urls.expand(code.decode(), "example.com")
    except UnicodeDecodeError:
        return
    assert isinstance(url, str)


@budget.tried(st.text(max_size=30) | st.lists(st.sampled_from(PIECES), max_size=4).map("".join))
def test_a_suffix_is_taken_or_refused_by_name(suffix):
    try:
        taken = sites._canonical_suffix(suffix)
    except errors.ConfigError as error:
        taken = str(error)
    assert "." in taken
