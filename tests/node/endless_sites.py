"""Sites as functions of a URL, for the trap watch: some without an end, some that are merely large."""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs

from node import traps

SITE = "site.example"
_WORDS = """river stone harbour window engine garden letter market silver bridge candle forest meadow copper island
painter winter summer ladder kettle basket mirror orange purple yellow timber cotton velvet marble granite anchor
lantern compass saddle thunder whisper journey captain orchard village castle chimney pocket button needle hammer
barrel feather blanket cabinet curtain drawer fountain gallery highway kitchen library museum nursery office palace
quarter railway station theatre tunnel valley warehouse workshop academy battery century diamond evening factory"""
WORDS = _WORDS.split()
HEAD = """<!doctype html><html><head><title>{title}</title><script>var at = {seed};</script></head><body>
<ul class=menu><li><a href=/>Home</a><li><a href=/about>About us</a><li><a href=/contact>Contact</a></ul>"""
FOOT = """<div id=foot><p>All rights reserved. Terms of use and privacy policy apply to this site.</p>
<form action=/find><input name=q><button>Search</button></form><p>Page made in {seed} ms</p></div></body></html>"""


@dataclass(frozen=True)
class Site:
    name: str
    start: str
    page: Callable[[str], tuple[str, list[str]] | None]
    """(body, links) of a URL; None: not found."""


def prose(seed: object, words: int) -> str:
    chance = random.Random(f"{seed}")
    return " ".join(chance.choice(WORDS) for _ in range(words))


def page(title: str, *inside: str, links: Iterator[str] | list[str] = (), host: str = SITE) -> tuple[str, list[str]]:
    targets = [link if "://" in link else f"https://{host}{link}" for link in links]
    seed = random.randrange(10**6)  # what differs at each visit
    anchors = "".join(f"<a href={link}>{re.sub(r'.*[/=]', '', link)}</a>\n" for link in targets if "/item" not in link)
    body = HEAD.format(title=title, seed=seed) + f"<h1>{title}</h1>" + "".join(inside) + anchors
    return body + FOOT.format(seed=seed), targets


def path_of(url: str) -> str:
    return "/" + url.split("/", 3)[3]


# --- without an end -------------------------------------------------------------------------------------------------


def months(url):
    path = path_of(url)
    year, month = map(int, re.search(r"(\d+)-(\d+)", path).groups())
    ahead, back = (year + month // 12, month % 12 + 1), (year - (month == 1), month - 1 or 12)
    days = [f"/events/{year}-{month:02}-{day:02}" for day in range(1, 29)]
    around = [f"/events?month={y}-{m:02}" for y, m in (ahead, back)]
    if "?" in path:
        return page(f"Events in {MONTHS[month - 1]} {year}", "<p>There are no events.</p>", links=days + around)
    day = int(path[-2:]) % 28 + 1
    return page(
        f"Monday, {day} {MONTHS[month - 1]} {year}",
        "<p>Nothing on this day.</p>",
        links=[f"/events?month={year}-{month:02}", f"/events/{year}-{month:02}-{day:02}"],
    )


_MONTHS = "January February March April May June July August September October November December"
MONTHS = _MONTHS.split()


def growing_query(url):
    return page(
        "Find", "<p>Please enter a word to look for.</p>", links=[f"{path_of(url)}&q=", f"{path_of(url)}&q=&x="]
    )


def filters(url):
    """300 products, five filters by parameter, in any combination and order."""
    if "/item" in url:
        number = int(url.rsplit("/", 1)[1])
        return page(prose(("product", number), 2), f"<p>{prose(('about', number), 30)}</p>")
    said = parse_qs(url.partition("?")[2])
    chance = random.Random(repr(sorted(said.items())))
    shown = [
        f"<li><b>{prose(('product', n), 2)}</b> <i>{prose(('maker', n % 20), 1)}</i>"
        for n in chance.sample(range(300), 20)
    ]
    names = ["colour", "size", "maker", "sort", "stock"]
    more = [
        "/shop?" + "&".join(f"{k}={v[0]}" for k, v in {**said, name: [str(chance.randrange(40))]}.items())
        for name in names
    ]
    return page("Shop", f"<ul>{''.join(shown)}</ul>", links=more + [f"/item/{n}" for n in chance.sample(range(300), 5)])


def filters_in_path(url):
    """The same with names in the path, as shops like it."""
    if "/item" in url:
        number = int(url.rsplit("/", 1)[1])
        return page(prose(("product", number), 2), f"<p>{prose(('about', number), 30)}</p>")
    parts = [part for part in path_of(url).split("/")[2:] if part]
    chance = random.Random(repr(sorted(parts)))
    shown = [f"<li><b>{prose(('product', n), 2)}</b>" for n in chance.sample(range(120), 12)]
    more = [f"/shop/{'/'.join([*parts[-3:], name])}/" for name in chance.sample(WORDS, 8)]
    return page("Shop", f"<ul>{''.join(shown)}</ul>", links=more + [f"/item/{n}" for n in chance.sample(range(120), 3)])


def any_host(url):
    host = url.split("/")[2]
    chance = random.Random(url)
    others = [f"https://{chance.choice(WORDS)}-{chance.choice(WORDS)}{chance.choice(WORDS)}.{SITE}/" for _ in range(6)]
    return page(f"Welcome to {host}", "<p>This name is for sale.</p>", links=["/offer", "/about", *others], host=host)


def sessions(url):
    """20 pages, and a new session at each visit."""
    number = int(re.search(r"page(\d+)", url)[1])
    sid = f"{random.getrandbits(96):x}z9"
    text = f"<p>{prose(('session', number), 80)}</p>"
    return page(
        prose(("title", number), 3),
        text,
        links=[f"/(S({sid}))/page{n}.aspx" for n in ((number + 1) % 20, (number + 7) % 20)],
    )


def session_parameter(url):
    number = int(re.search(r"page(\d+)", url)[1])
    links = [f"/page{n % 20}.php?PHPSESSID={random.getrandbits(128):x}" for n in (number + 1, number + 7)]
    return page(prose(("title", number), 3), f"<p>{prose(('session', number), 80)}</p>", links=links)


def search_echo(url):
    asked = parse_qs(url.partition("?")[2])["q"][0]
    chance = random.Random(asked)
    links = [f"/search?q={chance.choice(WORDS)}+{chance.choice(WORDS)}+{chance.choice(WORDS)}" for _ in range(8)]
    return page(f"Results for {asked}", f"<p>Nothing was found for <b>{asked}</b>.</p>", links=links)


def soft_404(url):
    number = int(re.search(r"\d+", path_of(url))[0])
    return page(
        "Not found", "<p>This article is no longer here.</p>", links=[f"/article/{number + n}" for n in range(1, 9)]
    )


def log_in(url):
    number = int(re.search(r"\d+", path_of(url))[0])
    links = [f"/thread/{number * 3 + n}" for n in range(3)] + [f"/login?next=/thread/{number}"]
    return page("Please log in", "<p>You need an account to read this.</p>", links=links)


ENDLESS = [
    Site("months and days", f"https://{SITE}/events?month=2026-10", months),
    Site("growing query", f"https://{SITE}/find?q=", growing_query),
    Site("filters", f"https://{SITE}/shop?colour=1", filters),
    Site("filters in the path", f"https://{SITE}/shop/", filters_in_path),
    Site("any host", f"https://river-stone.{SITE}/", any_host),
    Site("sessions in the path", f"https://{SITE}/(S(lit3py55t21z5v55vlm25s55))/page1.aspx", sessions),
    Site("sessions in a parameter", f"https://{SITE}/page1.php", session_parameter),
    Site("search that repeats its words", f"https://{SITE}/search?q=river", search_echo),
    Site("missing pages that answer 200", f"https://{SITE}/article/1", soft_404),
    Site("a log-in wall", f"https://{SITE}/thread/1", log_in),
]


# --- large, and worth every page ------------------------------------------------------------------------------------

SIZE = 1_500


def number_of(url: str) -> int | None:
    found = re.search(r"\d+", path_of(url))
    number = int(found[0]) if found else 0
    return number if number < SIZE else None


def numbered(
    make: Callable[[int], tuple[str, list[str]]], shape: str = "/article/{}"
) -> Callable[[str], tuple[str, list[str]] | None]:
    def answer(url):
        if (number := number_of(url)) is None:
            return None
        body, links = make(number)
        return body, links + [f"https://{SITE}{shape.format(number + n)}" for n in range(1, 6)]

    return answer


def pages_of_a_list(url):
    """A list whose entries are numbers, to articles that say something."""
    number = number_of(url)
    if number is None:
        return None
    if "/item/" in url:
        return page(f"Item {number}", f"<p>{prose(('item', number), 40)}</p>")
    # Each page of the list leads to ten new items and says nothing else.
    links = [f"/item/{number * 4 + n}" for n in range(4)] + [f"/list?page={number + n}" for n in (1, 2)]
    return page(f"List, page {number}", "".join(f"<li>Item {number * 4 + n}" for n in range(4)), links=links)


def diary(url):
    """A calendar with an event now and then, and a text for each."""
    year, month = map(int, re.search(r"(\d+)-(\d+)", path_of(url)).groups())
    if not 1950 <= year < 2020:
        return None
    told = f"<li>{prose((year, month), 6)}" if random.Random(f"{year}{month}").random() < 0.3 else ""
    ahead, back = (year + month // 12, month % 12 + 1), (year - (month == 1), month - 1 or 12)
    return page(f"{MONTHS[month - 1]} {year}", told, links=[f"/diary?month={y}-{m:02}" for y, m in (ahead, back)])


def blogs(url):
    number = int(re.search(r"blog(\d+)", url)[1])
    if number >= SIZE:
        return None
    host = f"blog{number}.{SITE}"
    links = [f"https://blog{number + n}.{SITE}/" for n in range(1, 5)]
    return page(prose(("blog", number), 3), f"<p>{prose(('post', number), 60)}</p>", links=links, host=host)


def slugs(url):
    number = int(url.rsplit("-", 1)[1])
    if number >= SIZE:
        return None
    links = [f"/blog/{prose(number + n, 2).replace(' ', '-')}-{number + n}" for n in range(1, 5)]
    return page(prose(number, 2), f"<p>{prose(('text', number), 50)}</p>", links=links)


LARGE = [
    Site(
        "articles", f"https://{SITE}/article/0", numbered(lambda n: page(prose(("t", n), 5), f"<p>{prose(n, 200)}</p>"))
    ),
    Site(
        "thin products: a name of two words and a price",
        f"https://{SITE}/product.php?id=0",
        numbered(
            lambda n: page(f"{prose(n, 2)} - Shop", f"<p>{prose('shop', 300)}</p><b>{n}.99 EUR</b> in stock"),
            "/product.php?id={}",
        ),
    ),
    Site(
        "pictures without a word",
        f"https://{SITE}/photo/0",
        numbered(lambda n: page(f"Photo {n}", f"<img class=big src='/img/{n}.jpg'>"), "/photo/{}"),
    ),
    Site(
        "threads with the same authors",
        f"https://{SITE}/thread/0",
        numbered(
            lambda n: page(
                prose(("subject", n), 4),
                "".join(f"<b>{prose(('who', (n + k) % 30), 1)}</b><p>{prose((n, k), 12)}" for k in range(4)),
            ),
            "/thread/{}",
        ),
    ),
    Site(
        "profiles with a name alone",
        f"https://{SITE}/user/0",
        numbered(lambda n: page(f"{prose(('name', n), 2)}", f"<p>Member since {1990 + n % 30}</p>"), "/user/{}"),
    ),
    Site("pages of a list of numbers", f"https://{SITE}/list?page=0", pages_of_a_list),
    Site("a diary with an event in three months", f"https://{SITE}/diary?month=2019-12", diary),
    Site("blogs on hosts of their own", f"https://blog0.{SITE}/", blogs),
    Site("articles with names", f"https://{SITE}/blog/river-stone-0", slugs),
]


def crawl(site: Site, watch, pages_max: int) -> Iterator[tuple[str, object]]:
    """Breadth first, as the crawler does: endless patterns are not asked for, links of suspects wait. (URL, verdict)."""
    endless: tuple[str, ...] = ()
    queues: tuple[list[str], list[str]] = ([site.start], [])
    seen = {site.start}
    for _ in itertools.repeat(None, pages_max):
        while queues[0] or queues[1]:
            url = (queues[0] or queues[1]).pop(0)
            if not traps.is_endless(url, SITE, endless):
                break
        else:
            return
        answer = site.page(url)
        if answer is None:
            continue
        body, links = answer
        verdict = watch.saw(SITE, url, lambda body=body: body, links)
        if verdict.word == "endless":
            endless = traps.with_endless(endless, verdict.pattern)
        yield url, verdict
        for link in links:
            if link not in seen:
                seen.add(link)
                queues[verdict.word != "fine"].append(link)
