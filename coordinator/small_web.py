"""A whole small web as a value, grown from a seed: sites, pages, links, robots rules, what a crawl must find.

Pure: it knows no socket and no clock. Site sizes follow Zipf's law (the page count of a site falls as a power
of its rank), as those of the real web do: most sites are small and a few are long.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

SITES = 520
LARGEST = 60  # pages of the largest site: at half a second each, one site alone takes half a minute
EXPONENT = 0.35  # with the two numbers above: more than 5,000 pages, and most sites under ten
SLOW_SIZE_MAX = 20  # only small sites ask for a longer delay, or the demo would wait for them
UNSEEDED = 0.2  # share of sites that no seed names: they are found by links
WORDS = (
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "inlet",
    "juniper",
    "kelp",
    "linden",
    "maple",
    "north",
    "otter",
    "pine",
    "quartz",
)
NOUNS = (
    "harbor",
    "mill",
    "press",
    "garden",
    "notes",
    "atlas",
    "works",
    "forum",
    "museum",
    "market",
    "library",
    "radio",
    "school",
    "bakery",
    "studio",
)


class Kind(StrEnum):
    PAGE = "page"  # 200, with links
    MOVED = "moved"  # 302 to the first of its links
    GONE = "gone"  # 404
    BROKEN = "broken"  # 500, always
    PRIVATE = "private"  # its robots.txt forbids it: a request for it is a fault of the crawler


class Validator(StrEnum):
    NONE = "none"
    ETAG = "etag"
    DATE = "date"  # Last-Modified
    BOTH = "both"
    FICKLE = "fickle"  # an ETag that changes while the page does not


class Robots(StrEnum):
    ABSENT = "absent"  # 404: all is allowed
    EMPTY = "empty"
    RULES = "rules"  # /private/ is forbidden
    SLOW = "slow"  # Crawl-delay of a second, or of what its site says
    LATE = "late"  # 503 at first, rules from the second request on


SLOW_DELAY_S = 1


@dataclass(frozen=True, slots=True)
class Page:
    url: str
    kind: Kind
    links: tuple[str, ...] = ()
    validator: Validator = Validator.NONE
    period_s: float | None = None
    """It changes this often; 0 = at every visit, None = never."""

    @property
    def host(self) -> str:
        return self.url.split("/")[2]

    @property
    def path(self) -> str:
        return "/" + self.url.split("/", 3)[3]


@dataclass(frozen=True, slots=True)
class Site:
    name: str
    hosts: tuple[str, ...]
    robots: Robots
    pages: tuple[Page, ...]
    """The first is the home page."""
    seeded: bool
    crawl_delay_s: float | None = None
    """What a SLOW site asks for; None: SLOW_DELAY_S."""

    @property
    def home(self) -> str:
        return self.pages[0].url


@dataclass(frozen=True, slots=True)
class Web:
    sites: tuple[Site, ...]

    def seeds(self) -> list[str]:
        """Home pages; from them every page can be reached."""
        return [site.home for site in self.sites if site.seeded]

    def pages(self) -> Iterator[tuple[Site, Page]]:
        for site in self.sites:
            for page in site.pages:
                yield site, page

    def expected(self) -> dict[str, Kind]:
        """Every URL a whole crawl learns of, and what it is; only PRIVATE ones are never asked for."""
        return {page.url: page.kind for _, page in self.pages()}

    def delay_s(self, site: Site, minimum_s: float) -> float:
        """What a crawler with this minimum owes the site, once it has read its robots.txt."""
        return max(minimum_s, asked_delay_s(site)) if site.robots is Robots.SLOW else minimum_s


def build(seed: int, *, sites: int = SITES, largest: int = LARGEST) -> Web:
    """Grow the web of a seed; the same arguments give the same web in every process."""
    rng = Random(seed)
    names = _names(rng, sites)
    plain = [_site(rng, name, max(2, round(largest / rank**EXPONENT))) for rank, name in enumerate(names, start=1)]
    seeded = [True, *(rng.random() >= UNSEEDED for _ in plain[1:])]
    plain = [replace(site, seeded=known) for site, known in zip(plain, seeded, strict=True)]
    known = [site for site in plain if site.seeded]
    friends: dict[str, list[str]] = {}
    for site in plain:
        if not site.seeded:
            friends.setdefault(rng.choice(known).name, []).append(site.home)
    everything = [page.url for site in plain for page in site.pages if page.kind is Kind.PAGE]
    return Web(tuple(_linked(rng, site, friends.get(site.name, []), everything) for site in plain))


def asked_delay_s(site: Site) -> float:
    """The Crawl-delay of a SLOW site."""
    return SLOW_DELAY_S if site.crawl_delay_s is None else site.crawl_delay_s


def robots_text(site: Site) -> str:
    """The body of its robots.txt; only ABSENT sites have none."""
    match site.robots:
        case Robots.RULES | Robots.LATE:
            return "User-agent: *\nDisallow: /private/\n"
        case Robots.SLOW:
            return f"User-agent: *\nCrawl-delay: {asked_delay_s(site):g}\nDisallow: /private/\n"
        case Robots.ABSENT | Robots.EMPTY:
            return ""


def body(page: Page, version: int) -> str:
    """The page's HTML at a version: a title, a paragraph that differs by version, and the links."""
    rng = Random(f"{page.url} {version}")
    prose = " ".join(rng.choices(WORDS, k=120))
    links = "\n".join(f'<li><a href="{link}">{link}</a></li>' for link in page.links)
    return (
        f"<!doctype html>\n<html><head><title>{page.host}{page.path}</title></head>\n"
        f"<body><p>{prose}</p>\n<ul>\n{links}\n</ul></body></html>\n"
    )


def etag(page: Page, version: int) -> str:
    return '"' + hashlib.sha256(f"{page.url} {version}".encode()).hexdigest()[:16] + '"'


def _names(rng: Random, count: int) -> list[str]:
    pairs = [f"{word}-{noun}" for word in WORDS for noun in NOUNS]
    rng.shuffle(pairs)
    return [f"{pairs[i % len(pairs)]}{i // len(pairs) or ''}.{'example' if i % 3 else 'test'}" for i in range(count)]


def _site(rng: Random, name: str, size: int) -> Site:
    """A site without the links that leave it."""
    hosts = (
        (name, *(f"{part}.{name}" for part in rng.choice((("www",), ("blog", "shop")))))
        if rng.random() < 0.15
        else (name,)
    )
    robots = rng.choices([Robots.ABSENT, Robots.EMPTY, Robots.RULES], weights=[6, 1, 3])[0]
    if size <= SLOW_SIZE_MAX and rng.random() < 0.15:
        robots = rng.choices([Robots.SLOW, Robots.LATE], weights=[2, 1])[0]
    pages = [_page(rng, f"http://{hosts[0]}/")]
    pages += [_page(rng, f"http://{rng.choice(hosts)}/{rng.choice(NOUNS)}/{i}.html") for i in range(1, size)]
    pages += _oddities(rng, hosts, robots)
    return Site(name=name, hosts=hosts, robots=robots, pages=tuple(pages), seeded=True)


def _page(rng: Random, url: str) -> Page:
    validator = rng.choices(
        [Validator.ETAG, Validator.BOTH, Validator.DATE, Validator.NONE, Validator.FICKLE],
        weights=[9, 4, 3, 3, 1],
    )[0]
    period_s = rng.choices([None, 8.0, 30.0, 0.0], weights=[12, 3, 3, 2])[0]
    if validator is Validator.FICKLE:
        period_s = None
    return Page(url=url, kind=Kind.PAGE, validator=validator, period_s=period_s)


def _oddities(rng: Random, hosts: tuple[str, ...], robots: Robots) -> list[Page]:
    """The pages of a site that are not pages."""
    shares = {Kind.MOVED: 0.4, Kind.GONE: 0.25, Kind.BROKEN: 0.05}
    found = [
        Page(f"http://{rng.choice(hosts)}/{kind}/{rng.randrange(1000)}", kind)
        for kind, p in shares.items()
        if rng.random() < p
    ]
    if robots in {Robots.RULES, Robots.SLOW, Robots.LATE}:
        found.append(Page(f"http://{rng.choice(hosts)}/private/{rng.randrange(1000)}.html", Kind.PRIVATE))
    return found


def _linked(rng: Random, site: Site, friends: list[str], everything: list[str]) -> Site:
    """The site with its links: a tree that reaches every page of it, and some that cross it and the web."""
    inner = [page for page in site.pages if page.kind is Kind.PAGE]
    leaves = [page for page in site.pages if page.kind is not Kind.PAGE]
    links: dict[str, list[str]] = {page.url: [] for page in inner}
    links[site.home] += friends
    for i, page in enumerate(inner[1:], start=1):
        links[inner[(i - 1) // 4].url].append(page.url)
    for page in leaves:
        links[rng.choice(inner).url].append(page.url)
    for page in inner:
        links[page.url] += [rng.choice(inner).url, site.home, *rng.choices(everything, k=rng.randrange(3))]
    pages = []
    for page in site.pages:
        if page.kind is Kind.PAGE:
            pages.append(replace(page, links=tuple(dict.fromkeys(links[page.url]))))
        elif page.kind is Kind.MOVED:
            pages.append(replace(page, links=(rng.choice(everything),)))
        else:
            pages.append(page)
    return replace(site, pages=tuple(pages))
