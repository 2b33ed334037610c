"""The canonical form: literal rows, properties, and what others published about URLs."""

import csv
import json
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared import config, errors, sites, urls

# A busy machine is no counter-example.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
UNRESERVED = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def form(url, base=None, **settings):
    """The canonical URL, or the refusal's reason in angle brackets."""
    try:
        return urls.canonical(url, base, **settings)
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
    names = frozenset({"sid", "a b"})
    assert form(f"https://example.com/p{query}", drop_params=names) == f"https://example.com/p{expected}"


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
        assert form(once, drop_params=frozenset({"a", "1"})) == form(
            form(once, drop_params=frozenset({"a", "1"})), drop_params=frozenset({"a", "1"})
        )


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
    ],
)
def test_traps_are_refused_for_a_reason(path, reason):
    url = urls.canonical(f"https://example.com{path}")
    assert urls.refusal(url, config.Limits(url_bytes_max=200, path_depth_max=10, path_repeats_max=3)) == reason


# --- what others published -----------------------------------------------------------------------------------


def rows(path):
    return [row for row in json.loads(path.read_text("utf-8")) if not isinstance(row, str)]


def crawlable(host):
    """Whether a host can be a name on the network, said without the code under test."""
    if host.startswith("["):
        return True
    labels = host.removesuffix(".").split(".")
    return all(re.fullmatch(r"[a-z0-9_-]{1,63}", label) for label in labels) and len(host.removesuffix(".")) <= 253


def plain(text):
    """RFC 3986 6.2.2 by single characters; only for texts without a `%` that begins no escape."""
    out, index = "", 0
    while index < len(text):
        if text[index] == "%":
            char = chr(int(text[index + 1 : index + 3], 16))
            out += char if char in UNRESERVED else text[index : index + 3].upper()
            index += 3
        else:
            out += text[index]
            index += 1
    return out


def expected_of(row):
    """Our form, worked out from what the WHATWG standard says of a row."""
    if row.get("failure"):
        return "<invalid>"
    if row["protocol"] not in {"http:", "https:"}:
        return "<scheme>"
    if not crawlable(row["hostname"]):
        return "<host>"
    port = f":{row['port']}" if row["port"] else ""
    path = row["href"].split("#")[0].split("/", 3)[3]
    if not re.search(r"%(?![0-9A-Fa-f]{2})", path):
        path = plain(path)
    return f"{row['protocol']}//{row['hostname'].removesuffix('.')}{port}/{path}"


def test_every_row_of_the_url_standards_tests_with_a_web_base(conformance):
    checked = 0
    for name in ("urltestdata", "ada_extra_urltestdata"):
        for row in rows(conformance / "wpt-url" / f"{name}.json"):
            base = row.get("base")
            if base and not base.startswith(("http:", "https:")):
                continue
            if "%2e%2" in row["input"]:  # a stray %: the literal rows above say what becomes of it
                continue
            assert form(row["input"], base) == expected_of(row), row
            checked += 1
    assert checked > 700


def test_every_host_of_the_idna_tests(conformance):
    """Names that the standard allows and no network can carry (empty or long labels) are refused as hosts."""
    checked = 0
    for name in ("toascii", "IdnaTestV2", "IdnaTestV2-removed"):
        for row in rows(conformance / "wpt-url" / f"{name}.json"):
            host, output = row["input"], row["output"]
            if not host or re.search(r"[\s/?#@:\\]", host):
                continue
            if output is None:
                assert form(f"https://{host}/x").startswith("<"), row
            elif crawlable(output):
                assert form(f"https://{host}/x") == f"https://{output.removesuffix('.')}/x", row
            else:
                assert form(f"https://{host}/x") == "<host>", row
            checked += 1
    assert checked > 2_500


def test_names_that_dns_cannot_carry_are_refused(conformance):
    for row in rows(conformance / "wpt-url" / "verifydnslength_tests.json"):
        assert form(row["input"]).startswith("<") is row["failure"], row


def commented_csv(path):
    lines = (line for line in path.read_text("utf-8").splitlines() if line.strip() and not line.startswith("#"))
    return list(csv.reader(lines, skipinitialspace=True))


def params(query):
    return sorted(part.removesuffix("=") for part in query.split("&") if part and not part.startswith("="))


# What a row wants done that we leave undone, since a server may tell the two apart.
NOT_OURS = {
    "another scheme": lambda _url, expected: not expected.startswith(("http://", "https://")),
    "no scheme or no host": lambda url, _expected: not url.partition("//")[2].strip("/"),
    "host in Unicode": lambda _url, expected: not expected.isascii(),
    "slashes merged": lambda url, _expected: "//" in url.partition("//")[2].partition("?")[0],
    "stray % escaped": lambda url, _expected: re.search(r"%(?![0-9A-Fa-f]{2})", url),
    "characters escaped that browsers leave": lambda url, _expected: re.search(r"[?].*[][^`|]", url),
    "query sorted or its empty parts dropped": lambda url, expected: (
        query_of(url) != query_of(expected) and params(query_of(url)) == params(query_of(expected)) and "?" in url
    ),
    "empty query dropped": lambda url, _expected: "?" in url and not query_of(url),
}


def query_of(url):
    return url.partition("#")[0].partition("?")[2]


@pytest.mark.parametrize("corpus", ["crawler-commons", "nutch"])
def test_the_published_pairs_of_two_crawlers_within_our_profile(conformance, corpus):
    if corpus == "nutch":
        data = json.loads((conformance / "canon/nutch/nutch_normalizer_cases.json").read_text("utf-8"))
        pairs = [(row["input"], row["expected"]) for row in data["nutch_urlnormalizer_basic"]]
    else:
        pairs = [row[:2] for row in commented_csv(conformance / "canon/crawler-commons/weirdToNormalizedUrls.csv")]
    ours = [(url, expected) for url, expected in pairs if not any(wants(url, expected) for wants in NOT_OURS.values())]
    assert [(url, form(url), expected) for url, expected in ours if form(url) != expected] == []
    assert len(ours) >= {"nutch": 64, "crawler-commons": 74}[corpus]


def test_broken_urls_of_crawler_commons_are_refused(conformance):
    for (url,) in commented_csv(conformance / "canon/crawler-commons/invalidUrls.csv"):
        assert form(url) == "<invalid>"


def test_links_of_crawler_commons_are_joined_alike(conformance):
    for link, base, expected in commented_csv(conformance / "canon/crawler-commons/url-resolve.csv"):
        assert form(link, base or None) == form(expected), link


def test_odd_spellings_of_ipv4_and_dots_in_paths(conformance):
    folder = conformance / "canon" / "urlcanon"
    for host, address in json.loads((folder / "funky_ipv4.json").read_text("utf-8")).items():
        if host != "0000xa":  # no number by the URL standard, so a name
            assert form(f"http://{host}/") == (f"http://{address}/" if address else "<invalid>"), host
    for path, expected in json.loads((folder / "path_dots.json").read_text("utf-8"))["special"].items():
        if "\\" not in path:  # in a web URL a backslash is a slash
            assert form(f"http://h{path}") == f"http://h{expected}", path


def test_forms_of_published_urls_are_their_own_forms(conformance):
    folder = conformance / "canon" / "urlcanon"
    inputs = json.loads((folder / "idempotence.json").read_text("utf-8"))
    inputs += list(json.loads((folder / "semantic_precise.json").read_text("utf-8")))
    real = (conformance / "domains" / "ada-kasztp-urls.txt").read_text("utf-8-sig").splitlines()
    for url in inputs + real:
        once = form(url)
        assert once.startswith("<") or form(once) == once
    refused = [url for url in real if form(url).startswith("<")]
    assert all(url.startswith('https://"') or url == "https://" for url in refused)
    assert len(real) - len(refused) > 47_000
