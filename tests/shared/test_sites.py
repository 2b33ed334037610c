"""The site rule: literal rows and settings that must change the digest; the list's own tests are in tests/conformance."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared import errors, sites, urls

# A busy machine is no counter-example.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
RULE = sites.Sites()
BLOGS = sites.Sites(("github.io", "blogspot.com"))


def site(url, rule=RULE):
    return rule.site_of(urls.canonical(url))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://EXAMPLE.com/", "example.com"),
        ("http://Example.COM./", "example.com"),
        ("https://www.shop.example.com/", "example.com"),
        ("https://a.b.example.co.uk/", "example.co.uk"),
        ("http://bücher.de/", "xn--bcher-kva.de"),
        ("http://xn--bcher-kva.de/", "xn--bcher-kva.de"),
        ("http://localhost:8080/", "localhost"),
        ("http://intranet/", "intranet"),
        ("http://box.local/", "box.local"),
        ("http://a.corp/", "a.corp"),
        ("http://x.b.corp/", "b.corp"),
        ("http://127.0.0.1:8080/", "127.0.0.1"),
        ("http://127.0.0.01/", "127.0.0.1"),
        ("http://0x7f.0.0.1/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://[::1]/", "[::1]"),
        ("http://[2001:DB8:0::0:1]:8080/", "[2001:db8::1]"),
        ("http://[::ffff:1.2.3.4]/", "[::ffff:102:304]"),
        ("http://co.uk/", "co.uk"),
        ("http://com/", "com"),
        ("http://ck/", "ck"),
        ("http://foo.ck/", "foo.ck"),
        ("http://a.foo.ck/", "a.foo.ck"),
        ("http://www.ck/", "www.ck"),
        ("http://a.www.ck/", "www.ck"),
        ("http://foo.kawasaki.jp/", "foo.kawasaki.jp"),
        ("http://x.city.kawasaki.jp/", "city.kawasaki.jp"),
        ("http://alice.github.io/", "github.io"),
        ("http://github.io/", "github.io"),
        ("http://a.blogspot.com/", "blogspot.com"),
        ("http://foo.s3.amazonaws.com/", "amazonaws.com"),
        ("http://user:pw@example.com:8080/", "example.com"),
        ("http://example.com%2eevil.com/", "evil.com"),
        ("http://1.2.3.4.in-addr.arpa/", "4.in-addr.arpa"),
        ("http://食狮.公司.cn/", "xn--85x722f.xn--55qx5d.cn"),
        ("http://www.食狮.中国/", "xn--85x722f.xn--fiqs8s"),
        ("http://中国/", "xn--fiqs8s"),
    ],
)
def test_one_host_has_one_site(url, expected):
    assert site(url) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://alice.github.io/", "alice.github.io"),
        ("http://www.alice.github.io/", "alice.github.io"),
        ("http://github.io/", "github.io"),
        ("http://a.blogspot.com/", "a.blogspot.com"),
        ("http://foo.s3.amazonaws.com/", "amazonaws.com"),
        ("http://www.example.com/", "example.com"),
    ],
)
def test_only_the_chosen_private_suffixes_count_as_public(url, expected):
    assert site(url, BLOGS) == expected


def test_a_chosen_suffix_may_be_a_wildcard_or_in_unicode_and_in_no_list():
    rule = sites.Sites(("*.hosting.example", "Bücher.DE"))
    assert rule.private_suffixes == ("*.hosting.example", "xn--bcher-kva.de")
    assert site("http://www.shop.eu.hosting.example/", rule) == "shop.eu.hosting.example"
    assert site("http://www.leser.bücher.de/", rule) == "leser.xn--bcher-kva.de"


@pytest.mark.parametrize(
    "suffix", ["", "com", "*", "*.", "a b.io", "127.0.0.1", "[::1]", "git/hub.io", "a@b.io", "b.io:80"]
)
def test_what_is_no_suffix_is_refused(suffix):
    with pytest.raises(errors.ConfigError):
        sites.Sites((suffix,))


def test_the_digest_tells_settings_apart_and_nothing_else():
    assert RULE.digest == sites.Sites().digest
    assert BLOGS.digest == sites.Sites(("blogspot.com", "GitHub.io", "github.io")).digest
    assert len({RULE.digest, BLOGS.digest, sites.Sites(("github.io",)).digest}) == 3
    assert sites.Sites(("hosting.example",)).digest != RULE.digest, "even if no odd host is below it"
    assert re.fullmatch(r"[0-9a-f]{16}", RULE.digest)


def test_a_list_that_was_edited_is_refused(monkeypatch):
    monkeypatch.setattr(sites, "LIST_SHA256", "0" * 64)
    with pytest.raises(errors.ConfigError, match="public suffix list"):
        sites.Sites()


def test_the_list_is_never_fetched():
    """With every contact to the network refused, the rule still loads and answers."""
    script = (
        "import sys\n"
        "def watch(event, _args):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.gethostbyname', 'socket.sendto'):\n"
        "        raise SystemExit(event)\n"
        "sys.addaudithook(watch)\n"
        "from shared import sites\n"
        "print(sites.Sites(('github.io',)).site_of_host('www.alice.github.io'))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "alice.github.io\n", "")


labels = st.sampled_from(
    ["a", "b-c", "www", "xn--bcher-kva", "com", "co", "uk", "jp", "kawasaki", "ck", "io", "github", "zz"]
)


@PATIENT
@given(st.lists(labels, min_size=1, max_size=5).map(".".join))
def test_a_site_is_the_host_or_what_it_ends_in_and_a_site_of_itself(host):
    for rule in (RULE, BLOGS):
        found = rule.site_of_host(host)
        assert host == found or host.endswith("." + found)
        assert rule.site_of_host(found) == found
        assert rule.site_of_host("deeper." + host).endswith(found)
