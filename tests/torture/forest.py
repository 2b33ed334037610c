"""The web that is crawled under fire, grown from a seed: every site a tree, so that a lost link shows as lost pages.

Pure: it knows no socket and no clock. A page is linked for the first time from one place alone, its parent in the
tree; one in SISTER_EVERY has its parent in the site before, so that its offer has to travel between owners. All other
links lead back to ancestors and seeds: they repeat offers, and are never a second way to a page.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from coordinator import small_web

SLOW = "/slow/"  # pages under it are answered late
UNSEEDED_EVERY = 5
SISTER_EVERY, SISTER = 11, 3
LANES = 8
ODD_SHARE = 0.02  # of a site's pages are moved, and as many gone
SLOW_PAGE_EVERY, SLOW_PAGE = 90, 7
PRIVATE_EVERY, PRIVATE = 40, 5
SLOW_SITES = ((10, 7, 2.0), (20, 3, 3.0))  # every so many, from this one on, asks for this Crawl-delay
BASE_DELAY_S = 1.0  # a site that asks for more has fewer pages in proportion, and ends with the others

Kind, Robots, Validator = small_web.Kind, small_web.Robots, small_web.Validator


@dataclass(frozen=True, slots=True)
class _Tree:
    """A site before it is linked; lists are by the page's number, the home page is number 0."""

    hosts: tuple[str, ...]
    robots: small_web.Robots
    urls: list[str]
    kinds: list[small_web.Kind]
    parents: list[int | None]
    """None: the home page, and sisters, whose parent is in the site before."""
    crawl_delay_s: float | None = None

    def sisters(self) -> Iterator[int]:
        return (k for k, parent in enumerate(self.parents) if k and parent is None)

    def inner(self, k: int) -> int:
        """Page k, or the nearest before it that has links and is reached from this site's own home."""
        while k and (self.kinds[k] is not Kind.PAGE or self.parents[k] is None):
            k -= 1
        return k

    def ancestor(self, rng: Random, k: int) -> int:
        """A page that was found before page k wherever k was found; k itself where there is none."""
        for _ in range(rng.randrange(1, 5)):
            above = self.parents[k]
            if above is None:
                return k
            k = above
        return k


def grow(sites: int, pages_per_site: int, seed: int) -> small_web.Web:
    """`sites` x `pages_per_site` URLs, forbidden ones included, fewer on slow sites.

    The same arguments give the same web everywhere; another seed gives other names, and so other owners.
    """
    rng = Random(f"forest {seed}")
    offset = rng.randrange(1, UNSEEDED_EVERY)  # never 0: the first site has a seed, and so has each before an unseeded
    seeded = [i % UNSEEDED_EVERY != offset for i in range(sites)]
    trees = [_tree(rng, i, pages_per_site, seed=seed, sisters=sites > 1) for i in range(sites)]
    homes = [tree.urls[0] for tree, known in zip(trees, seeded, strict=True) if known]
    links: list[list[list[str]]] = []
    for i, tree in enumerate(trees):
        following = trees[(i + 1) % sites]
        links.append(_tree_links(tree))
        for k in following.sisters():
            links[i][tree.inner(min(k, len(tree.urls) - 1))].append(following.urls[k])
        if not seeded[(i + 1) % sites]:
            links[i][0].append(following.urls[0])
    return small_web.Web(
        tuple(
            small_web.Site(
                name=tree.hosts[0],
                hosts=tree.hosts,
                robots=tree.robots,
                pages=tuple(_pages(rng, tree, links[i], homes)),
                seeded=seeded[i],
                crawl_delay_s=tree.crawl_delay_s,
            )
            for i, tree in enumerate(trees)
        )
    )


def _tree(rng: Random, i: int, count: int, *, seed: int, sisters: bool) -> _Tree:
    name = f"t{i:03}s{seed}.example"
    hosts = (name, f"www.{name}") if rng.random() < 0.2 else (name,)
    robots = rng.choices([Robots.ABSENT, Robots.RULES, Robots.EMPTY], weights=[5, 3, 1])[0]
    asked_s = next((delay_s for every, first, delay_s in SLOW_SITES if i % every == first), None)
    if asked_s is not None:
        robots, count = Robots.SLOW, min(count, max(2, round(count * BASE_DELAY_S / asked_s)))
    urls, kinds = [f"http://{name}/"], [Kind.PAGE]
    for k in range(1, count):
        kind, path = _page(rng, k, robots)
        urls.append(f"http://{rng.choice(hosts)}{path}")
        kinds.append(kind)
    return _Tree(hosts, robots, urls, kinds, _parents(i, kinds, sisters=sisters), asked_s)


def _page(rng: Random, k: int, robots: small_web.Robots) -> tuple[small_web.Kind, str]:
    chance = rng.random()
    if robots in {Robots.RULES, Robots.SLOW} and k % PRIVATE_EVERY == PRIVATE:
        return Kind.PRIVATE, f"/private/{k}.html"
    if chance < ODD_SHARE:
        return Kind.MOVED, f"/moved/{k}"
    if chance < 2 * ODD_SHARE:
        return Kind.GONE, f"/gone/{k}"
    return Kind.PAGE, f"{SLOW if k % SLOW_PAGE_EVERY == SLOW_PAGE else '/p/'}{k}.html"


def _parents(i: int, kinds: list[small_web.Kind], *, sisters: bool) -> list[int | None]:
    """A third of the sites are long lanes, whose queues stay short and whose every link carries all that follows.

    The others are trees of two or three children a page.
    """
    inner = [0]  # pages that may have children, in order
    parents: list[int | None] = [None]
    for k, kind in enumerate(kinds[1:], start=1):
        if sisters and kind is Kind.PAGE and k % SISTER_EVERY == SISTER:
            parents.append(None)
            continue
        nth = len(inner)
        parents.append(inner[max(0, nth - LANES) if i % 3 == 0 else (nth - 1) // (1 + i % 3)])
        if kind is Kind.PAGE:
            inner.append(k)
    return parents


def _tree_links(tree: _Tree) -> list[list[str]]:
    links: list[list[str]] = [[] for _ in tree.urls]
    for url, parent in zip(tree.urls, tree.parents, strict=True):
        if parent is not None:
            links[parent].append(url)
    return links


def _pages(rng: Random, tree: _Tree, links: list[list[str]], homes: list[str]) -> Iterator[small_web.Page]:
    """The site's pages, with the links that lead back added at the end."""
    for k, (url, kind) in enumerate(zip(tree.urls, tree.kinds, strict=True)):
        if kind is Kind.MOVED:
            yield small_web.Page(url, kind, (rng.choice(homes),))
        elif kind is Kind.PAGE:
            back = (tree.urls[tree.ancestor(rng, k)], *rng.choices(homes, k=rng.randrange(2)))
            validator = Validator.ETAG if rng.random() < 0.7 else Validator.NONE
            yield small_web.Page(url, kind, tuple(dict.fromkeys((*links[k], *back))), validator)
        else:
            yield small_web.Page(url, kind)
