"""Parts of a site that have no end stop by themselves, and large parts that are worth every page do not."""

import collections
import re
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import shapes, traps, visible
from shared import config, urls
from tests.node import endless_sites as webs

ALIKE_MAX = config.Limits().alike_max
SITE = webs.SITE


@pytest.mark.parametrize("web", webs.ENDLESS, ids=lambda web: web.name)
def test_a_part_without_an_end_stops(web):
    """Every one of these webs could be crawled for ever; each ends here, most after 64 to 250 pages a pattern."""
    asked = list(webs.crawl(web, traps.Watch(alike_max=ALIKE_MAX), 1_500))
    assert len(asked) < 1_200, "it went on"
    told = {verdict.shape: verdict.pattern for _, verdict in asked if verdict.word == "endless"}
    assert told
    assert all(shapes.digest(shape) == pattern for shape, pattern in told.items())
    urls_of = collections.Counter(shape for url, _ in asked for shape in shapes.shapes_of(url, SITE) if shape in told)
    assert min(urls_of.values()) >= traps.FREE_PAGES + traps.SAME_PAGES - 1, "no pattern is judged by a few pages"


@pytest.mark.parametrize("web", webs.LARGE, ids=lambda web: web.name)
def test_a_large_part_that_says_something_on_each_page_is_never_slowed(web):
    asked = list(webs.crawl(web, traps.Watch(alike_max=ALIKE_MAX), 4_000))
    assert len(asked) >= 800
    assert {verdict.word for _, verdict in asked} == {"fine"}


def mixed(url):
    """Articles, each with a link into a calendar without an end."""
    if "/events" in url:
        return webs.months(url)
    number = webs.number_of(url)
    if number is None:
        return None
    links = [f"/article/{number + n}" for n in (1, 2, 3)] + [f"/events?month={1990 + number % 60}-{number % 12 + 1:02}"]
    return webs.page(webs.prose(("mixed", number), 4), f"<p>{webs.prose(number, 40)}</p>", links=links)


def test_a_calendar_ends_and_the_articles_beside_it_go_on():
    """Case trap-calendar: other patterns of the site go on."""
    web = webs.Site("mixed", f"https://{SITE}/article/0", mixed)
    asked = [url for url, _ in webs.crawl(web, traps.Watch(alike_max=ALIKE_MAX), 4_000)]
    assert len({url for url in asked if "/article/" in url}) == webs.SIZE
    assert len([url for url in asked if "/events" in url]) < 600


def shown(text: str, *, image: str = "") -> str:
    return f"<html><title>Shop</title><body><p>All about our shop and its wares</p><p>{text}</p>{image}</body></html>"


def seen(watch: traps.Watch, number: int, text: str, links=(), *, path="/p?id={}") -> traps.Verdict:
    return watch.saw(SITE, f"https://{SITE}{path.format(number)}", lambda: shown(text), links)


def test_nothing_is_read_before_a_pattern_has_many_pages():
    watch = traps.Watch(alike_max=ALIKE_MAX)
    for number in range(traps.FREE_PAGES):
        assert watch.saw(SITE, f"https://{SITE}/p?id={number}", lambda: pytest.fail("was read"), ()) == traps.FINE


def test_the_very_same_pages_end_after_64_and_pages_that_say_nothing_new_after_200():
    watch = traps.Watch(alike_max=200)
    words = [seen(watch, number, f"Seen {number} times").word for number in range(64)]
    assert words == ["fine"] * 63 + ["endless"]
    watch = traps.Watch(alike_max=200)
    # Twelve sentences in ever other choices: each page is another, none says anything new.
    pick = [webs.prose(("sentence", n), 6) for n in range(12)]
    words = [
        seen(watch, number, "</p><p>".join(pick[n] for n in range(12) if number >> n & 1)).word
        for number in range(1, 400)
    ]
    assert 180 <= words.index("endless") <= 260
    assert "suspect" in words[: words.index("endless")], "its links wait before it is given up"
    assert words.index("suspect") >= 90


def test_one_page_in_ten_with_something_new_keeps_a_pattern():
    watch = traps.Watch(alike_max=200)
    words = {seen(watch, n, webs.prose(("rare", n), 5) if n % 10 == 0 else "Nothing today").word for n in range(2_000)}
    assert words == {"fine"}


def test_a_pattern_that_was_worth_it_ends_once_it_repeats_itself():
    watch = traps.Watch(alike_max=200)
    for number in range(1_000):
        assert seen(watch, number, webs.prose(("good", number), 30)).word == "fine"
    words = [seen(watch, number, "Nothing left").word for number in range(1_000, 1_500)]
    assert "endless" in words


def test_an_image_or_a_link_to_something_worth_it_is_something_new():
    watch = traps.Watch(alike_max=200)
    for number in range(500):
        body = shown("A picture", image=f"<img alt='' src='/i/{number}.jpg?w=2'>")
        assert watch.saw(SITE, f"https://{SITE}/pic/{number}", lambda body=body: body, ()) == traps.FINE
    watch = traps.Watch(alike_max=200)
    for number in range(500):
        assert seen(watch, number, "A list", [f"https://{SITE}/item/{number}"]) == traps.FINE
        assert seen(watch, number, webs.prose(("item", number), 20), path="/item/{}") == traps.FINE
    watch = traps.Watch(alike_max=200)
    away = {seen(watch, n, "A list", [f"https://other{n}.example/"]).word for n in range(500)}
    assert away == {"fine"}, "a directory of other sites"


def test_two_patterns_that_show_nothing_but_links_to_each_other_are_worth_nothing():
    watch = traps.Watch(alike_max=200)
    words = set()
    for number in range(300):
        words.add(seen(watch, number, "A month", [f"https://{SITE}/day/{number}"], path="/month/{}").word)
        words.add(seen(watch, number, "A day", [f"https://{SITE}/month/{number}"], path="/day/{}").word)
    assert "endless" in words


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://example.com/events?month=2026-10", ["example.com/events?month"]),
        ("http://example.com:8080/a/12/b3.html", ["example.com/a/#/b#.html", "example.com/a/*/*"]),
        ("https://example.com/?b=1&a=2&b=3&", ["example.com/?&a&b", "example.com/?*"]),
        ("https://example.com/p?f[12]=x&f[7]=y", ["example.com/p?f[#]", "example.com/p?f[#]"]),
        ("https://example.com/(S(lit3py55t21z5v55vlm25s55))/page.aspx", ["example.com/(S(*))/page.aspx", None]),
        ("https://example.com/a.jsp;jsessionid=0123456789abcdef?x=y", ["example.com/a.jsp;?x"]),
        ("https://example.com/f/0123456789abcdef0123456789abcdef", ["example.com/f/*", "example.com/f/*"]),
        ("https://example.com/c/123e4567-e89b-12d3-a456-426614174000/", [None, "example.com/c/*/"]),
        ("https://example.com/watch/dQw4w9WgXcQ", ["example.com/watch/*"]),
        ("https://example.com/my-long-title-of-an-article/", ["example.com/my-long-title-of-an-article/"]),
        ("https://example.com/mp3/h264/", ["example.com/mp#/h#/", "example.com/mp#/*/"]),
        ("https://example.com/%E4%B8%AD%E6%96%87", ["example.com/%E4%B8%AD%E6%96%87"]),
        ("https://www.example.com/a", ["www.example.com/a"]),
        ("https://shop7.example.com/a", ["shop#.example.com/a", "*.example.com/a"]),
        ("https://x7k2q9.a.example.com/", ["*.a.example.com/", "*.example.com/"]),
        ("https://a8f3c2d19b.example.com/", ["*.example.com/"]),
    ],
)
def test_a_url_has_the_shape_that_is_left_when_what_counts_is_taken_out(url, wanted):
    found = shapes.shapes_of(url, "example.com")
    for one, other in zip(found, wanted, strict=False):
        assert other in {None, one}
    assert len(found) == len(dict.fromkeys(one for one in wanted)) or None in wanted


def test_other_sites_than_names_have_shapes_too():
    assert shapes.shapes_of("http://127.0.0.1:8000/a/1", "127.0.0.1") == ("127.0.0.1/a/#", "127.0.0.1/a/*")
    assert shapes.shapes_of("http://[::1]/a?b", "[::1]") == ("[::1]/a?b",)


def test_the_growing_query_is_one_pattern():
    """Case trap-query-dup."""
    assert len({shapes.patterns_of(f"http://example.com/?{'q=&' * n}q=", "example.com")[0] for n in range(9)}) == 1


paths = st.text("ab/19-;.?&=%[", max_size=60).map(lambda text: urls.canonical(f"https://w.example.com/{text}"))


@given(paths)
def test_a_pattern_is_stable_and_each_digit_may_be_another(url):
    found = shapes.patterns_of(url, "example.com")
    assert 1 <= len(found) <= 4
    assert all(re.fullmatch("[0-9a-f]{12}", pattern) for pattern in found)
    if "%" not in url:
        assert (
            shapes.patterns_of(re.sub("[0-9]", "7", url.split("/", 3)[3]).join([url[:22], ""]), "example.com") == found
        )
    assert traps.is_endless(url, "example.com", ("x", found[-1]))
    assert not traps.is_endless(url, "example.com", ())
    assert not traps.is_endless(url, "example.com", ("000000000000",))


def test_a_sites_record_keeps_64_patterns_each_once():
    known: tuple[str, ...] = ()
    for number in range(100):
        known = traps.with_endless(traps.with_endless(known, f"{number}"), f"{number}")
    assert known == tuple(f"{number}" for number in range(36, 100))


def test_what_a_page_shows_is_its_text_without_what_changes_by_itself():
    body = (
        "<title>Results for foo</title><script>var a = '<p>no</p>';</script><style>p{}</style><!-- no <p>no</p> -->"
        "<h1>Monday, 12 October 2026</h1><p>3rd of 12 <b>Blue  widgets</b> a1b2c3 0badc0de</p><svg><text>no</text></svg>"
        "<img alt=x src=\"/a.png?t=1\"><a title='no'>Search FOO bar</a><p>März</p><p>int8x16_t</p>"
    )
    runs, images = visible.content_of(body, "https://h.example.com/s?q=foo")
    assert list(runs) == ["results for", "#rd of", "blue widgets", "search bar", "int#x# t"]
    assert images == ["/a.png"]


@given(
    st.lists(
        st.sampled_from(["<p>", "<script>", "</script>", "<!--", "-->", "<img src=", "x", "7", "é", "<", ">", " "])
    )
)
def test_any_text_is_shown_as_something(pieces):
    runs, images = visible.content_of("".join(pieces), "https://example.com/?x")
    assert all(runs)
    assert all(images)


@pytest.mark.parametrize(
    "piece", ["<img ", "<img src=", "<script", "<script>", "<!--", "<", "a", "a1", "<p>a", "é", "</script", "x "]
)
def test_hostile_repeats_cost_time_in_proportion(piece):
    began_s = time.process_time()
    visible.content_of(piece * (visible.TEXT_CHARS_MAX // len(piece)), "https://a.example/x?y")
    assert time.process_time() - began_s < 0.5


def test_an_ordinary_page_costs_microseconds_and_a_long_crawl_a_few_megabytes():
    watch = traps.Watch(alike_max=ALIKE_MAX)
    addresses = [f"https://www.s{n % 400}.example/2026/05/an-article-of-some-length-{n}" for n in range(5_000)]
    began_s = time.process_time()
    for n, url in enumerate(addresses):
        watch.saw(f"s{n % 400}.example", url, str, ())
    assert (time.process_time() - began_s) / len(addresses) < 100e-6  # 10 to 17 us on an idle core
    tracemalloc.start()
    watch = traps.Watch(alike_max=ALIKE_MAX)
    for n in range(22_000):
        site = f"s{n // 40}.example"
        watch.saw(
            site, f"https://{site}/{n}-{n:x}.html?{n}" if n % 40 > 33 else f"https://{site}/{n}", lambda: shown("x"), ()
        )
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held_bytes < 24_000_000
