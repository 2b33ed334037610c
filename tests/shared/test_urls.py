"""The canonical form: literal rows and properties; what others published is judged in tests/conformance."""

import re
import string
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared import config, errors, membership, sites, urls

# A busy machine is no counter-example.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
UNRESERVED = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def form(url, base=None, *, by=urls.PLAIN, encoding="utf-8"):
    """The canonical URL, or the refusal's reason in angle brackets."""
    try:
        return urls.canonical(url, base, form=by, encoding=encoding)
    except errors.InvalidUrl as error:
        return f"<{error}>"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTP://User:pw@WWW.Example.COM.:80/a/../B%7e%2f?q=%41#f", "http://www.example.com/B~%2F?q=A"),
        ("https://example.com", "https://example.com/"),
        ("https://example.com:443/", "https://example.com/"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("  https://exa\tmple.com/a b\n", "https://example.com/a%20b"),
        ("https://example.com/?", "https://example.com/?"),
        ("https://example.com/?b=2&a=1&a=1", "https://example.com/?b=2&a=1&a=1"),
        ("https://example.com//a//b/", "https://example.com//a//b/"),
        ("https://bücher.de/ü?ü#ü", "https://xn--bcher-kva.de/%C3%BC?%C3%BC"),
        ("https://BÜCHER.de/", "https://xn--bcher-kva.de/"),
        ("http://127.0.0.01/", "http://127.0.0.1/"),
        ("http://0x7f.0.0.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://[2001:DB8:0:0::1]:8080/x", "http://[2001:db8::1]:8080/x"),
        ("http://a_b.example.com/", "http://a_b.example.com/"),
        ("http://ex%61mple.com/", "http://example.com/"),
        ("http:///x/y", "http://x/y"),
        ("https://example.com/%zz%7E%", "https://example.com/%zz~%"),
        ("https://example.com/%2%35", "https://example.com/%2%35"),
        ("https://example.com/%%36%31", "https://example.com/%%36%31"),
        ("https://example.com/a/%2e%2e/b", "https://example.com/b"),
        ("https://example.com/a/%2e%2eb", "https://example.com/a/..b"),
        ("ftp://example.com/", "<scheme>"),
        ("mailto:a@example.com", "<scheme>"),
        ("javascript:void(0)", "<scheme>"),
        ("file:///etc/passwd", "<scheme>"),
        ("example.com/a", "<invalid>"),
        ("", "<invalid>"),
        ("http://", "<invalid>"),
        ("http://a b/", "<invalid>"),
        ("http://[::1", "<invalid>"),
        ("http://example.com:99999/", "<invalid>"),
        ("http://example.com%2eevil.com\\@x/", "http://example.com.evil.com/@x/"),
        ("http://\ud800.com/", "<invalid>"),
        ("http://./", "<host>"),
        ("http://a..b.com/", "<host>"),
        ("http://a.com../", "<host>"),
        ("http://{}x.com/", "<host>"),
        ("http://" + "a" * 64 + ".com/", "<host>"),
        ("http://" + "a" * 63 + ".com/", "http://" + "a" * 63 + ".com/"),
        ("http://" + "abcdefg." * 32 + "com/", "<host>"),
        ("https://example.com/" + "a" * 70_000, "<too_long>"),
    ],
)
def test_one_url_has_one_form(url, expected):
    assert form(url) == expected


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("../b?x#f", "https://example.com/b?x"),
        ("//other.example.org/a", "https://other.example.org/a"),
        ("?q=1", "https://example.com/a/page?q=1"),
        ("#top", "https://example.com/a/page?p"),
        ("", "https://example.com/a/page?p"),
        ("http:rel", "http://rel/"),
        ("HTTPS:rel", "https://example.com/a/rel"),
        ("tel:123", "<scheme>"),
        ("http://[/", "<invalid>"),
    ],
)
def test_a_link_is_joined_to_its_page(link, expected):
    assert form(link, "https://example.com/a/page?p") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?sid=1&a=2", "?a=2"),
        ("?a=2&sid=1&b=3", "?a=2&b=3"),
        ("?sid=1", ""),
        ("?sid", ""),
        ("?s%69d=1&x=sid", "?x=sid"),
        ("?SID=1", "?SID=1"),
        ("?a+b=1", ""),
        ("?", "?"),
        ("?asid=1&&", "?asid=1&&"),
    ],
)
def test_listed_query_parameters_are_dropped_and_nothing_else_changes(query, expected):
    by = urls.Form(drop_params=frozenset({"sid", "a b"}))
    assert form(f"https://example.com/p{query}", by=by) == f"https://example.com/p{expected}"


def test_the_parts_of_a_canonical_url():
    url = "https://www.example.com:8443/a/b?c=/d"
    assert urls.host_of(url) == "www.example.com"
    assert urls.origin_of(url) == "https://www.example.com:8443"
    assert urls.path_of(url) == "/a/b?c=/d"
    assert urls.host_of("http://[2001:db8::1]:80/x:y") == "[2001:db8::1]"
    assert urls.origin_of("http://x/") == "http://x"
    assert urls.path_of("http://x/") == "/"


# --- properties ----------------------------------------------------------------------------------------------

pieces = st.sampled_from(
    [
        *(
            "http://",
            "https://",
            "//",
            "/",
            "\\",
            ".",
            "..",
            "%2e",
            "%2E",
            "%",
            "%2",
            "%25",
            "%41",
            "%7e",
            "%zz",
            "%c3%BC",
        ),
        *(
            "example.com",
            "www.",
            "a",
            "Ü",
            "ß",
            "xn--",
            "xn--bcher-kva.de",
            "[::1]",
            "1.2.3.4",
            "0x7f",
            "@",
            ":",
            ":80",
        ),
        *(
            "?",
            "&",
            "=",
            "+",
            "#",
            " ",
            "\t",
            "{",
            "}",
            "^",
            "|",
            "\u3002",
            "\u200d",
            "4",
            "1",
            "e",
            ";",
            "'",
            '"',
            "\ufeff",
        ),
    ]
)
texts = st.one_of(st.text(max_size=40), st.lists(pieces, max_size=12).map("".join))
links = st.one_of(texts, texts.map("https://".__add__), texts.map("http://example.com/".__add__))


@PATIENT
@given(links)
@example("http://example.com/%%36%31")
@example("http://example.com/%2%35")
@example("http://example.com/%%4%31")
@example("http://1.2.3.4./")
@example("http://a.0x1./")
def test_the_form_of_a_form_is_itself(link):
    once = form(link)
    if not once.startswith("<"):
        assert form(once) == once
        assert form(once, "https://other.example/x") == once


ID = "0123456789abcdefghijklemopqrstuv"
FORMS = (
    urls.PLAIN,
    urls.Form(drop_params=frozenset({"a", "1", ""})),
    urls.Form(session_ids=True),
    urls.Form(
        drop_params=frozenset({"a"}), session_ids=True, aliases={"www.example.com": "example.com", "[::1]": "a.b"}
    ),
)
ENCODINGS = (
    *("utf-8", "utf-16-le", "cp1252", "cp1251", "koi8-r", "iso8859-2", "cp932", "euc_jp"),
    *("iso2022_jp", "cp949", "gbk", "gb18030", "big5hkscs"),
)
ids = st.sampled_from(
    [
        *(f";jsessionid={ID}", f"&sid={ID}", f"?phpsessid={ID}", f";sid={ID[:-1]}", f";jsessionid={ID}.n1", "?%zz&a"),
        *(
            "/(S(lit3py55t21z5v55vlm25s55))",
            "/(lit3py55t21z5v55vlm25s55)",
            "/p.aspx",
            "..",
            "&CFID=12",
            "&CFTOKEN=12345678",
        ),
        *("%4", "1", "%73id=", "www.example.com", "&a=%"),
    ]
)
queries = st.one_of(
    links, st.lists(pieces | ids, max_size=14).map(lambda parts: "http://example.com/" + "".join(parts))
)


@settings(PATIENT, max_examples=300)
@given(queries, st.sampled_from(FORMS), st.sampled_from(ENCODINGS))
@example("http://h/?a=%zz&sid=%4" + ID[1:], FORMS[3], "utf-8")
@example("http://h/x?a=%&b=%41", FORMS[1], "utf-8")
@example(f"http://h/..;sid={ID}/b", FORMS[2], "utf-8")
@example(f"http://h/(lit3py55t21z5v55vlm25s55)/p.aspx;sid={ID}", FORMS[2], "utf-8")
@example("http://h/?q=\u30c1\u4e9c\u203e\\", FORMS[0], "iso2022_jp")
def test_the_form_of_a_form_is_itself_whatever_the_operator_and_the_page_want(link, by, encoding):
    once = form(link, by=by, encoding=encoding)
    if not once.startswith("<"):
        assert form(once, by=by, encoding=encoding) == once
        assert form(once, by=by) == once
        assert form(once, encoding=encoding) == once


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/(S(lit3py55t21z5v55vlm25s55))/page.aspx", "/page.aspx"),
        ("/(a(4hqa0555fwsecu455xqckv45)S(4hqa0555fwsecu455xqckv45))/x", "/x"),
        ("/(4hqa0555fwsecu455xqckv45)/x.aspx", "/x.aspx"),
        ("/(4hqa0555fwsecu455xqckv45)/x.html", "/(4hqa0555fwsecu455xqckv45)/x.html"),
        ("/(S(lit3py55t21z5v55vlm25s5))/page.aspx", "/(S(lit3py55t21z5v55vlm25s5))/page.aspx"),
        (f"/a.jsp;jsessionid={ID}?x=y", "/a.jsp?x=y"),
        (f"/a.jsp;JSESSIONID={ID}.node1;v=2", "/a.jsp;v=2"),
        (f"/a.jsp;jsessionid={ID}0?x=y", f"/a.jsp;jsessionid={ID}0?x=y"),
        (f"/{ID}/sid/{ID}", f"/{ID}/sid/{ID}"),
        ("/?PHPSESSID=cdc993a493e899bed04f4d0c8a462a03&f=2", "/?f=2"),
        ("/?PHPSESSID=0123456789abcdefghij012345&f=2", "/?f=2"),
        (f"/?jsessionid={ID}", "/"),
        (f"/?jsessionid={ID}0", f"/?jsessionid={ID}0"),
        (f"/?one=two&jsessionid={ID}&x=y", "/?one=two&x=y"),
        (f"/?one=two;jsessionid={ID}", "/?one=two"),
        ("/?aspsessionidABCDEFGH=ABCDEFGHIJKLMNOPQRSTUVWX&x=y", "/?x=y"),
        ("/?sid=9682993c8daa2c5497996114facdc805&x=y", "/?x=y"),
        (f"/?sid=9682993c8daa2c5497996114facdc805&jsessionid={ID}", "/"),
        ("/boo?CFID=1169580&CFTOKEN=48630702&dt=22%2F08", "/boo?dt=22%2F08"),
        ("/boo?CFID=14475712&CFTOKEN=2D89F5AF-3048-2957-DA4EE4B6B13661AB&r=4&m=f", "/boo?r=4&m=f"),
        ("/boo?CFID=14475712&r=4", "/boo?CFID=14475712&r=4"),
        (f"/?NewsID={ID}&addressid={ID}&insid={ID}", f"/?NewsID={ID}&addressid={ID}&insid={ID}"),
        ("/?sid=xyz&sessionid=", "/?sid=xyz&sessionid="),
        ("/?", "/?"),
    ],
)
def test_session_ids_of_known_shapes_are_dropped_where_that_was_asked_for(url, expected):
    assert form(f"http://foo.com{url}", by=urls.Form(session_ids=True)) == f"http://foo.com{expected}"
    assert form(f"http://foo.com{url}") == f"http://foo.com{url}", "a site may need them"


def test_an_alias_is_the_host_it_is_another_name_of():
    by = urls.Form(aliases={"WWW.Bücher.de": "bücher.de", "old.example": "WWW.bücher.de.", "[::0:1]": "v6.example"})
    assert dict(by.aliases) == {
        "www.xn--bcher-kva.de": "xn--bcher-kva.de",
        "old.example": "xn--bcher-kva.de",
        "[::1]": "v6.example",
    }
    assert form("https://old.example:8443/x?y", by=by) == "https://xn--bcher-kva.de:8443/x?y"
    assert form("http://[::1]:80/x", by=by) == "http://v6.example/x"
    assert form("http://not.old.example/", by=by) == "http://not.old.example/"


@pytest.mark.parametrize(
    "aliases",
    [
        {"a.b": "a.b"},
        {"a.b": "c.d", "c.d": "a.b"},
        {"x.y": "a.b", "a.b": "c.d", "c.d": "a.b"},
        {"A.b": "a.B."},
        {"a.b": "c.d", "A.b": "e.f"},
        {"a.b": ""},
        {"": "a.b"},
        {"http://a.b": "c.d"},
        {"a.b/x": "c.d"},
        {"a.b": "c.d:80"},
        {"a.b": "u@c.d"},
        {"a.b": "a b"},
        {"a.b": "[::1"},
        {"a.b": "[::1]:80"},
    ],
)
def test_aliases_that_lead_nowhere_are_refused(aliases):
    with pytest.raises(errors.ConfigError, match=r"sites\.aliases"):
        urls.Form(aliases=aliases)


def test_what_changes_the_form_changes_its_description():
    tables = [
        config.SiteSettings(),
        config.SiteSettings(drop_params=("a",)),
        config.SiteSettings(drop_session_ids=True),
        config.SiteSettings(aliases={"a.b": "c.d"}),
        config.SiteSettings(aliases={"a.b": "c.e"}),
        config.SiteSettings(drop_params=("a",), drop_session_ids=True, aliases={"a.b": "c.d"}),
    ]
    assert len({urls.Form.of(table).described for table in tables}) == len(tables)
    agreed = [membership.fingerprint(config.Config(sites=table), sites_digest="") for table in tables]
    assert len({parts["canonical form"] for parts in agreed}) == len(tables), "nodes must not differ in it"
    assert urls.Form.of(tables[0]) is urls.PLAIN
    same = urls.Form.of(config.SiteSettings(drop_params=("b", "a", "b"), aliases={"x.y": "A.b", "a.b": "c.d"}))
    other = urls.Form.of(config.SiteSettings(drop_params=("a", "b"), aliases={"a.b": "c.d", "X.y": "c.d"}))
    assert same.described == other.described


@pytest.mark.parametrize(
    ("link", "encoding", "expected"),
    [
        ("/search?q=привет&p=/п", "cp1251", "/search?q=%EF%F0%E8%E2%E5%F2&p=/%EF"),
        ("/п?q=п", "cp1251", "/%D0%BF?q=%EF"),
        ("/п?q=п", "utf-16-le", "/%D0%BF?q=%D0%BF"),
        ("/?q=\u20ac", "cp1252", "/?q=%80"),
        ("/?q=☃&r=é", "cp1252", "/?q=%26%239731%3B&r=%E9"),
        ("/?q=\U0001f600\ud83d", "cp1252", "/?q=%26%23128512%3B%26%2365533%3B"),
        (" /?q=é \x1f", "cp1252", "/?q=%E9"),
        ("/?q=é\n\té#é?é", "cp1252", "/?q=%E9%E9"),
        ("/?q=é #f", "cp1252", "/?q=%E9%20"),
        ("/#é?é", "cp1252", "/"),
        ("/?a='\"<>é", "cp1252", "/?a=%27%22%3C%3E%E9"),
        ("/?a=%E9%zzé", "cp1252", "/?a=%E9%zz%E9"),
        ("?日本", "cp932", "/?%93%FA%96{"),
        ("?日本", "euc_jp", "/?%C6%FC%CB%DC"),
        ("?\uff0d\u2212\uff5e", "euc_jp", "/?%A1%DD%A1%DD%A1%C1"),
        ("?丂", "euc_jp", "/?%26%2319970%3B"),
        ("?ﾊ", "iso2022_jp", "/?%1B$B%O%1B(B"),
        ("?ש€", "gbk", "/?%26%231513%3B%80"),
        ("?ש", "gb18030", "/?%810%FB7"),
        ("?中㐀", "big5hkscs", "/?%A4%A4%26%2313312%3B"),
    ],
)
def test_a_query_is_written_in_the_encoding_of_its_page_and_the_path_in_utf8(link, encoding, expected):
    assert form(link, "https://example.com/", encoding=encoding) == f"https://example.com{expected}"


@PATIENT
@given(st.text(alphabet=string.ascii_letters + string.digits + "=&/éñüß ", max_size=20))
def test_a_server_decodes_the_query_that_its_page_meant(text):
    import urllib.parse  # noqa: PLC0415

    sent = form(f"/?{text}|", "https://example.com/", encoding="iso8859-15").partition("?")[2]
    assert urllib.parse.unquote(sent, encoding="iso8859-15") == f"{text}|"


def test_a_hostile_link_costs_no_more_than_its_length():
    by = FORMS[3]
    began_s = time.process_time()
    for part in (f";jsessionid={ID}", f"&sid={ID}", "(a(", "/(S(lit3py55t21z5v55vlm25s55))", "&a=%zz", "é?", "%4"):
        form("http://h/?é" + part * (60_000 // len(part)), by=by, encoding="cp1252")
        form("http://h/" + part * (60_000 // len(part)), by=by, encoding="big5hkscs")
    assert time.process_time() - began_s < 2.0


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("http://a123456789012345678901234567890123456789012345678901234567890123/", "<host>"),
        ("https://sloneczne_stablowice.forumoteka.pl/", "https://sloneczne_stablowice.forumoteka.pl/"),
        ("https://[2402:4e00:40:40::2:3b6]:80/", "https://[2402:4e00:40:40::2:3b6]:80/"),
        (" h\nt\r\ntp://ex\r\nample.com\t ", "http://example.com/"),
        ("http://", "<invalid>"),
        ("https://:443/", "<invalid>"),
        ("http:///example.com", "http://example.com/"),
        (
            "/fa/news/1815565/\u0627\u0639\u0632\u0627\u0645",
            "https://e.com/fa/news/1815565/%D8%A7%D8%B9%D8%B2%D8%A7%D9%85",
        ),
        ("http%3A//scrapytest.org/a%C3%A7%C3%A3o", "https://e.com/d/http%3A//scrapytest.org/a%C3%A7%C3%A3o"),
        ("http://bourospan@itheka.gr", "http://itheka.gr/"),
        ("file:///etc/passwd", "<scheme>"),
        ("gopher://127.0.0.1:6379/_FLUSHALL", "<scheme>"),
        ("bluesky://d:i:d", "<scheme>"),
        ("call:+380", "<scheme>"),
        ("steam:code", "<scheme>"),
    ],
)
def test_links_and_redirects_of_the_field_have_one_form_or_one_reason(link, expected):
    assert form(link, "https://e.com/d/x") == expected


@PATIENT
@given(links, st.sampled_from([None, "https://example.com/a/b?c", "http://[::1]:8080/"]))
def test_whatever_a_page_holds_gives_a_plain_form_or_a_reason(link, base):
    url = form(link, base)
    if url.startswith("<"):
        assert url in {"<too_long>", "<invalid>", "<scheme>", "<host>"}
        return
    assert re.fullmatch(r"https?://([a-z0-9_.-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?/[!-~]*", url)
    assert "#" not in url
    assert "@" not in urls.origin_of(url)
    assert not urls.host_of(url).endswith(".")
    assert urls.origin_of(url) + urls.path_of(url) == url
    for escape in re.findall(r"%[0-9A-Fa-f]{2}", url):
        assert escape == escape.upper()
        assert chr(int(escape[1:], 16)) not in UNRESERVED or re.search(r"%(?![0-9A-F]{2})", url)


hosts = st.sampled_from(
    [
        "example.com",
        "www.example.com",
        "a.b.c.co.uk",
        "localhost",
        "127.0.0.1",
        "[2001:db8::1]",
        "https.com",
        "x.github.io",
    ]
)
canonicals = st.builds(
    "{}://{}{}/{}".format,
    st.sampled_from(["http", "https"]),
    hosts,
    st.sampled_from(["", ":8080", ":1"]),
    st.text("abc/:?~%.[]&=", max_size=12),
).map(form)
RULE = sites.Sites()


@PATIENT
@given(canonicals)
@example("https://https.https.com/")
@example("http://http.https.com:1//x")
def test_a_short_form_is_undone_exactly(url):
    for site in (RULE.site_of(url), urls.host_of(url), "elsewhere.org", "com"):
        code = urls.compact(url, site)
        assert urls.expand(code, site) == url
        assert len(code) <= len(url)
        assert code.isascii()
        assert code.isprintable()


@pytest.mark.parametrize(
    ("url", "site", "code"),
    [
        ("https://example.com/a?b", "example.com", "/a?b"),
        ("http://example.com/a", "example.com", "~/a"),
        ("https://www.example.com/a", "example.com", "www/a"),
        ("http://a.b.example.com:8080/", "example.com", "~a.b:8080/"),
        ("https://[::1]:8443/x", "[::1]", ":8443/x"),
        ("https://badexample.com/x", "example.com", "https://badexample.com/x"),
        ("https://https.example.com/x", "example.com", "https/x"),
    ],
)
def test_a_short_form_leaves_out_what_the_site_says(url, site, code):
    assert urls.compact(url, site) == code
    assert urls.expand(code, site) == url


@PATIENT
@given(st.lists(canonicals, unique=True, min_size=2))
def test_two_urls_of_a_site_have_two_short_forms_and_two_digests(some):
    for site in {RULE.site_of(url) for url in some}:
        mine = [url for url in some if RULE.site_of(url) == site]
        assert len({urls.compact(url, site) for url in mine}) == len(mine)
    assert len({urls.digest(url) for url in some}) == len(some)
    assert all(0 <= urls.digest(url) < 2**63 for url in some)


def test_a_digest_is_the_same_in_every_process_and_version():
    assert urls.digest("https://example.com/") == 2761380695151568501


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/", None),
        ("/a/a/a", None),
        ("/a/a/a/a", "repeats"),
        ("/a/a/a/b", None),
        ("/a/b/a/b/a/b/a/b", "repeats"),
        ("/a/a/a?a/a/a/a", None),
        ("////////", None),
        ("/" + "/".join(map(str, range(10))), None),
        ("/" + "/".join(map(str, range(11))), "too_deep"),
        ("/" + "/".join(map(str, range(10))) + "/", None),
        ("/" + "x" * 180, None),
        ("/" + "x" * 182, "too_long"),
        ("/?" + "x" * 200, "too_long"),
        ("/?q=&q=&q=", None),
        ("/?q=&q=&q=&q=", "repeats"),
        ("/?q=&r=&q=&q=&s=1&q=", "repeats"),
        ("/?q=1&q=2&q=3&q=4&q=5", None),
        ("/?&&&&&&&", None),
        ("/a/a/a/b/c?q&q&q&q", "repeats"),
    ],
)
def test_traps_are_refused_for_a_reason(path, reason):
    url = urls.canonical(f"https://example.com{path}")
    assert urls.refusal(url, config.Limits(url_bytes_max=200, path_depth_max=10, path_repeats_max=3)) == reason
