"""The scope says of each URL what the operator meant: hosts, prefixes, patterns, depth, seeds, budgets, types."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import config, errors, scope, sites, urls

PLACES = sites.Sites()


def of(*seeds: scope.SeedRule, **settings: object) -> scope.Scope:
    return scope.Scope.of(config.Scope(**settings), seeds or None)


def reason(chosen: scope.Scope, url: str, depth: int = 1, hops: int = 0) -> str | None:
    canonical = urls.canonical(url)
    return chosen.verdict(canonical, PLACES.site_of(canonical), depth, hops=hops)


@pytest.mark.parametrize(
    ("rule", "inside", "outside"),
    [
        ("example.com", ["https://example.com/", "http://a.b.example.com:81/x"], ["https://badexample.com/"]),
        ("Example.COM.", ["https://example.com/"], ["https://example.com.evil.org/"]),
        ("b\u00fccher.de", ["https://www.xn--bcher-kva.de/"], ["https://bucher.de/"]),
        ("192.0.2.1", ["http://192.0.2.1/x"], ["http://192.0.2.11/"]),
        ("[2001:db8::1]", ["http://[2001:db8:0::1]:8080/"], ["http://[2001:db8::2]/"]),
        ("localhost", ["http://localhost:1/"], ["http://local/"]),
        ("https://e.org/docs/", ["https://e.org/docs/", "http://e.org/docs/a?b"], ["https://e.org/docs"]),
        (
            "https://e.org/docs",
            ["https://e.org/docs", "https://e.org/docs/a", "https://e.org/docs?q"],
            ["https://e.org/docs-old", "https://e.org/docs.html", "https://www.e.org/docs", "https://e.org:8/docs"],
        ),
        ("e.org/docs/", ["https://e.org/docs/x"], ["https://e.org/x"]),
        ("http://e.org:8080", ["http://e.org:8080/x"], ["http://e.org/x"]),
        ("https://e.org/l?cat=1", ["https://e.org/l?cat=1", "https://e.org/l?cat=1&p=2"], ["https://e.org/l?cat=11"]),
        ("https://e.org/l?q=", ["https://e.org/l?q=anything"], ["https://e.org/l?p=q"]),
        ("https://e.org/%7Ea/", ["https://e.org/~a/b"], ["https://e.org/a/"]),
        (r"~[?&]sort=", ["https://e.org/?sort=1", "https://e.org/?a&sort=1"], ["https://e.org/sort=1"]),
        (r"~(?i)\.PDF$", ["https://e.org/a.pdf"], ["https://e.org/a.pdf?x"]),
        (r"~^https?://(?:[a-z0-9]*\.)*e\.org/", ["https://a.b.e.org/"], ["https://e.org.evil.net/"]),
    ],
)
def test_a_rule_covers_what_it_says_and_nothing_else(rule, inside, outside):
    allowing, denying = of(allow=(rule,)), of(deny=(rule,))
    for url in inside:
        assert reason(allowing, url) is None, url
        assert reason(denying, url) == scope.DENY, url
        assert denying.judge(urls.canonical(url), "", 1).rule == rule
    for url in outside:
        assert reason(allowing, url) == scope.ALLOW, url
        assert reason(denying, url) is None, url


def test_deny_wins_and_each_judgement_names_its_rule():
    chosen = of(allow=("e.org", "~news"), deny=("https://e.org/private/", "~secret"), depth_max=3)
    judge = lambda url, depth=1: chosen.judge(url, "e.org", depth)  # noqa: E731 - a shorter name for this test
    assert judge("https://e.org/") == (None, "e.org")
    assert judge("https://x.net/news") == (None, "~news")
    assert judge("https://e.org/private/a") == (scope.DENY, "https://e.org/private/")
    assert judge("https://e.org/a-secret") == (scope.DENY, "~secret")
    assert judge("https://x.net/") == (scope.ALLOW, "")
    assert judge("https://e.org/", 3).reason is None
    assert judge("https://e.org/", 4) == (scope.DEPTH, "depth_max 3")


def test_seeds_are_bound_by_the_operators_rules_too():
    assert reason(of(deny=("e.org",)), "https://e.org/", 0) == scope.DENY
    assert reason(of(allow=("e.org",)), "https://x.org/", 0) == scope.ALLOW


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ("~(/.+?)/.*\\1", "RE2"),
        ("~(?=x)", "RE2"),
        ("~(", "RE2"),
        ("~", "empty"),
        ("*.example.com", "asterisk"),
        ("https://e.org/*", "asterisk"),
        ("ftp://e.org/", "scheme"),
        ("e.org:8080", "neither a host"),
        ("a b", "no rule"),
        ("", "neither a host"),
        ("e.org?x", "neither a host"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_by_name(rule, part):
    with pytest.raises(errors.ConfigError, match=part) as caught:
        of(deny=(rule,))
    assert "scope.deny" in str(caught.value)


def test_no_pattern_is_slow_whatever_the_url():
    chosen = of(deny=(r"~(a*)*(a*)*(a|a)*b$", r"~(.*a){12}x", r"~^(([a-z])+.)+[A-Z]([a-z])+$"))
    url = "https://e.org/" + "a" * 2_000
    assert chosen.verdict(url, "e.org", 1) is None  # compiled and warm
    began = time.process_time()
    for _ in range(20):
        chosen.verdict(url, "e.org", 1)
    assert (time.process_time() - began) / 20 < 0.02  # a backtracking engine would not end at all


def test_patterns_searched_together_mean_what_each_means():
    for pair in [["~a|b"], ["~(?i)cc"], ["~a|b", "~(?i)cc", "~c"], ["~\\Qq(", "~b"], ["~\\Qa", "~\\Qb\\E"]]:
        rules = scope.Rules(pair, setting="scope.deny")
        for text in ("a", "b", "CC", "A", "q(", "c", "x", "bc", ""):
            alone = [one for one in pair if scope.Rules([one], setting="x").pattern(text)]
            assert rules.pattern(text) == (alone[0] if alone else ""), (pair, text)


def test_rules_name_hosts_as_their_urls_are_queued():
    form = urls.Form(aliases={"www.e.org": "e.org"})
    chosen = scope.Scope.of(config.Scope(allow=("https://www.e.org/docs/",)), form=form)
    assert chosen.verdict(urls.canonical("https://www.e.org/docs/a", form=form), "e.org", 1) is None


SEED = "https://docs.e.org/a/b.html?x=/y/"


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [
        ("page", [SEED, SEED.replace("https", "http")], ["https://docs.e.org/a/b.html", "https://docs.e.org/a/"]),
        ("prefix", ["https://docs.e.org/a/", "http://docs.e.org/a/c/d"], ["https://docs.e.org/", "https://e.org/a/"]),
        ("host", ["https://docs.e.org:8/"], ["https://e.org/", "https://x.docs.e.org/"]),
        ("site", ["https://e.org/", "https://x.e.org/"], ["https://f.org/"]),
        ("any", ["https://f.org/"], []),
    ],
)
def test_a_seeds_scope_admits_its_place(kind, inside, outside):
    chosen = of(scope.seed_rule(kind, SEED, "e.org"))
    assert [reason(chosen, url) for url in inside] == [None] * len(inside)
    assert [reason(chosen, url) for url in outside] == [scope.SEED] * len(outside)


def test_a_seed_is_in_scope_itself_and_a_redirect_of_it_is_not_for_that():
    chosen = of(scope.seed_rule("page", SEED, "e.org"))
    assert reason(chosen, "https://plain.net/", 0) is None
    assert reason(chosen, "https://plain.net/", 0, hops=1) == scope.SEED


def test_depth_of_a_seed_holds_for_what_it_admits_and_the_deepest_rule_wins():
    shallow = scope.seed_rule("site", "https://e.org/", "e.org", 1)
    deep = scope.seed_rule("prefix", "https://e.org/docs/", "e.org", 4)
    chosen = of(shallow, deep)
    assert reason(chosen, "https://e.org/x", 1) is None
    assert reason(chosen, "https://e.org/x", 2) == scope.DEPTH
    assert reason(chosen, "https://e.org/docs/x", 4) is None
    assert reason(chosen, "https://e.org/docs/x", 5) == scope.DEPTH
    assert reason(chosen, "https://f.org/", 1) == scope.SEED
    again = scope.seed_rule("site", "https://e.org/", "e.org", 3)
    assert reason(of(again, shallow), "https://e.org/x", 3) is None


def test_seeds_rules_and_the_operators_hold_together():
    chosen = of(scope.seed_rule("site", "https://e.org/", "e.org"), deny=("~private",), depth_max=2)
    assert reason(chosen, "https://e.org/private") == scope.DENY
    assert reason(chosen, "https://e.org/x", 3) == scope.DEPTH
    assert reason(chosen, "https://f.org/x", 2) == scope.SEED


names = st.sampled_from(["a", "b", "docs", "docs-old"])
paths = st.lists(names, max_size=4).map(lambda parts: "/" + "/".join(parts))
links = st.builds(
    lambda scheme, host, path, tail: f"{scheme}://{host}{path}{tail}",
    st.sampled_from(["http", "https"]),
    st.sampled_from(["e.org", "www.e.org", "e.org:81", "f.org", "[::1]", "192.0.2.7"]),
    paths,
    st.sampled_from(["", "/", "?a=/b/", ".html"]),
)
rules = st.builds(
    lambda kind, url, depth: scope.seed_rule(kind, urls.canonical(url), PLACES.site_of(urls.canonical(url)), depth),
    st.sampled_from(scope.KINDS),
    links,
    st.none() | st.integers(0, 3),
)


@given(st.lists(rules, max_size=6), links, st.integers(0, 4))
def test_seeds_looked_up_say_what_each_rule_says_by_itself(many, link, depth):
    url = urls.canonical(link)
    site = PLACES.site_of(url)
    rest = url.partition("://")[2]

    def grants(rule: scope.SeedRule) -> float:
        granted = math.inf if rule.depth is None else rule.depth
        place = rule.place.partition("://")[2]
        covered = {
            "page": rest == place,
            "prefix": rest.startswith(place),
            "host": urls.host_of(url) == rule.place,
            "site": site == rule.place,
            "any": True,
        }
        return granted if covered[rule.kind] else -1

    assert scope.Seeds(many).depth_of(url, site) == max(map(grants, many), default=-1)
    assert all(grants(scope.seed_rule(kind, url, site)) == math.inf for kind in scope.KINDS)


def test_budgets_are_of_pages_and_of_bytes():
    chosen = of(pages_per_site=10, bytes_per_site=1_000)
    assert chosen.spent(pages=9, body_bytes=999).reason is None
    assert chosen.spent(pages=10, body_bytes=0).reason == scope.PAGES
    assert chosen.spent(pages=0, body_bytes=1_000).reason == scope.BYTES
    assert of().spent(pages=10**9, body_bytes=10**12).reason is None


def test_content_types_are_compared_without_parameters_and_an_unnamed_one_is_read():
    chosen = of(content_types=("text/*", "Application/XHTML+xml"))
    for wanted in ("text/html", "TEXT/Plain; charset=x", "application/xhtml+xml", None, ""):
        assert chosen.wanted(wanted)
    for unwanted in ("image/png", "application/xml", "nonsense"):
        assert not chosen.wanted(unwanted)
    assert of().wanted("image/png") and of().all_types and not chosen.all_types
    with pytest.raises(errors.ConfigError, match="content_types"):
        of(content_types=("html",))


def test_nodes_with_other_rules_have_another_digest():
    assert of(deny=("e.org",)).digest == of(deny=("e.org",)).digest
    kinds = [
        of(),
        of(deny=("e.org",)),
        of(allow=("e.org",)),
        of(depth_max=1),
        of(pages_per_site=1),
        of(bytes_per_site=1),
    ]
    assert len({chosen.digest for chosen in [*kinds, of(content_types=("text/*",))]}) == 7


def test_forty_links_cost_no_more_than_a_few_microseconds_each():
    seeds = [scope.SeedRule(kind="site", place=f"s{number}.org") for number in range(10_000)]
    chosen = of(*seeds, scope.seed_rule("site", "https://e.org/", "e.org"), deny=("x.org",), allow=("e.org",))
    page = [f"https://w{number % 3}.e.org/a/b/{number}.html" for number in range(40)]

    def cost_s() -> float:
        began = time.process_time()
        for _ in range(50):
            assert not any(chosen.verdict(url, "e.org", 2) for url in page)
        return (time.process_time() - began) / 50

    assert min(cost_s() for _ in range(5)) < 300e-6  # some 40 microseconds at rest; a scan of the rules takes 100,000
