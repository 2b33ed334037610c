"""The demo's web is the same for the same seed, large enough, heavy-tailed, and wholly reachable."""

import dataclasses
from collections import deque

import pytest

from coordinator import small_web
from coordinator.small_web import Kind, Robots


@pytest.fixture(scope="module")
def web() -> small_web.Web:
    return small_web.build(7)


def test_the_demo_web_has_the_size_it_promises(web: small_web.Web):
    sizes = sorted(sum(page.kind is Kind.PAGE for page in site.pages) for site in web.sites)
    assert len(sizes) >= 300
    assert sum(sizes) >= 5_000
    assert sizes[-1] == small_web.LARGEST
    assert sizes[-1] > 5 * sizes[len(sizes) // 2], "most sites are small and a few are long"


def test_the_same_seed_gives_the_same_web():
    assert small_web.build(3, sites=20) == small_web.build(3, sites=20)
    assert small_web.build(3, sites=20) != small_web.build(4, sites=20)


@pytest.mark.parametrize("sites", [1, 2, 20, 520])
@pytest.mark.parametrize("seed", [1, 7])
def test_every_page_is_reached_from_the_seeds_without_private_pages(seed: int, sites: int):
    web = small_web.build(seed, sites=sites)
    pages = {page.url: page for _, page in web.pages()}
    reached = set(web.seeds())
    todo = deque(reached)
    while todo:
        page = pages[todo.popleft()]
        if page.kind is Kind.PRIVATE:
            continue  # its links are never seen
        fresh = set(page.links) - reached
        reached |= fresh
        todo += fresh
    assert reached == set(web.expected())


def test_urls_are_unique_and_belong_to_a_host_of_their_site(web: small_web.Web):
    urls = [page.url for _, page in web.pages()]
    assert len(urls) == len(set(urls))
    assert all(page.host in site.hosts for site, page in web.pages())
    assert all(host == site.name or host.endswith(f".{site.name}") for site in web.sites for host in site.hosts)
    assert len({site.name for site in web.sites}) == len(web.sites)


def test_a_slow_site_may_ask_for_another_delay():
    slow = small_web.Site(name="a.example", hosts=("a.example",), robots=Robots.SLOW, pages=(), seeded=True)
    longer = dataclasses.replace(slow, crawl_delay_s=2.5)
    web = small_web.Web((slow, longer))
    assert [web.delay_s(site, 0.5) for site in web.sites] == [small_web.SLOW_DELAY_S, 2.5]
    assert web.delay_s(longer, 3.0) == 3.0
    assert "Crawl-delay: 1\n" in small_web.robots_text(slow)
    assert "Crawl-delay: 2.5\n" in small_web.robots_text(longer)


def test_every_sort_of_trouble_is_there(web: small_web.Web):
    assert {page.kind for _, page in web.pages()} == set(Kind)
    assert {site.robots for site in web.sites} == set(Robots)
    assert {page.validator for _, page in web.pages() if page.kind is Kind.PAGE} == set(small_web.Validator)
    assert len({page.period_s for _, page in web.pages()}) >= 3
    assert 0 < len(web.seeds()) < len(web.sites)
    across = sum(link.split("/")[2] not in site.hosts for site, page in web.pages() for link in page.links)
    assert across > 1_000


def test_private_pages_are_forbidden_by_a_rule(web: small_web.Web):
    for site, page in web.pages():
        if page.kind is Kind.PRIVATE:
            assert page.path.startswith("/private/")
            assert "Disallow: /private/" in small_web.robots_text(site)


def test_slow_sites_are_small_and_say_so(web: small_web.Web):
    slow = [site for site in web.sites if site.robots is Robots.SLOW]
    assert all(f"Crawl-delay: {small_web.SLOW_DELAY_S}" in small_web.robots_text(site) for site in slow)
    assert all(len(site.pages) <= small_web.SLOW_SIZE_MAX + len(Kind) for site in slow)
    assert {web.delay_s(site, 0.5) for site in slow} == {1}
    assert web.delay_s(slow[0], 2.0) == 2.0


def test_a_body_differs_by_version_and_holds_the_links(web: small_web.Web):
    page = web.sites[0].pages[0]
    assert small_web.body(page, 0) == small_web.body(page, 0)
    assert small_web.body(page, 0) != small_web.body(page, 1)
    assert all(f'href="{link}"' in small_web.body(page, 0) for link in page.links)
    assert small_web.etag(page, 0) != small_web.etag(page, 1)
