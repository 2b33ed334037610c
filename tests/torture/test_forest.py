"""The forest: the web that a torture run crawls, and the process that serves it."""

import collections
import http.client
import os
import signal
import time

import pytest

from coordinator import local, small_web
from tests.cluster import web
from tests.torture import forest

SHAPES = [(1, 1, 0), (1, 30, 1), (2, 5, 4), (5, 40, 2), (13, 50, 3), (24, 120, 7)]


def reached(graph: small_web.Web, *, without: tuple[str, str] | None = None) -> set[str]:
    pages = {page.url: page for _, page in graph.pages()}
    found = set(graph.seeds())
    todo = list(found)
    while todo:
        url = todo.pop()
        for link in pages[url].links:
            if link not in found and (url, link) != without:
                found.add(link)
                todo.append(link)
    return found


@pytest.mark.parametrize(("sites", "pages", "seed"), SHAPES)
def test_it_has_so_many_pages_and_all_can_be_reached(sites, pages, seed):
    graph = forest.grow(sites, pages, seed)
    for site in graph.sites:
        assert len(site.pages) == min(pages, max(2, round(pages / (site.crawl_delay_s or 1))))
    assert reached(graph) == set(graph.expected())
    assert forest.grow(sites, pages, seed) == graph
    assert pages == 1 or forest.grow(sites, pages, seed + 1) != graph


@pytest.mark.parametrize(("sites", "pages", "seed"), SHAPES[2:5])
def test_every_page_has_one_link_that_its_discovery_hangs_on(sites, pages, seed):
    """A lost offer is a lost page, and all below it."""
    graph = forest.grow(sites, pages, seed)
    linked = collections.defaultdict(list)
    for _, page in graph.pages():
        for link in page.links:
            linked[link].append(page.url)
    for url in graph.expected().keys() - set(graph.seeds()):
        assert any(url not in reached(graph, without=(one, url)) for one in linked[url]), url


def test_slow_sites_ask_for_more_than_the_delay_of_the_run_and_end_with_the_others():
    graph = forest.grow(40, 60, 7)
    slow = [site for site in graph.sites if site.robots is small_web.Robots.SLOW]
    assert sorted(site.crawl_delay_s for site in slow) == [2.0] * 4 + [3.0] * 2
    for site in slow:
        assert f"Crawl-delay: {site.crawl_delay_s:g}\n" in small_web.robots_text(site)
        assert graph.delay_s(site, 1.0) == site.crawl_delay_s
        assert len(site.pages) * site.crawl_delay_s == 60


def test_another_seed_gives_other_names():
    names = [{site.name for site in forest.grow(5, 5, seed).sites} for seed in (1, 2)]
    assert not names[0] & names[1]


def test_some_of_everything():
    graph = forest.grow(24, 120, 7)
    kinds = collections.Counter(page.kind for _, page in graph.pages())
    assert set(kinds) == {small_web.Kind.PAGE, small_web.Kind.MOVED, small_web.Kind.GONE, small_web.Kind.PRIVATE}
    assert {site.robots for site in graph.sites} >= {
        small_web.Robots.SLOW,
        small_web.Robots.RULES,
        small_web.Robots.ABSENT,
    }
    assert 0.7 <= sum(site.seeded for site in graph.sites) / 24 <= 0.9
    assert any(forest.SLOW in page.url for _, page in graph.pages())
    assert any(len(site.hosts) > 1 for site in graph.sites)
    across = [
        page.url
        for site, page in graph.pages()
        for link in page.links
        if page.kind is small_web.Kind.PAGE and not link.endswith("/") and site.name not in link
    ]
    assert len(across) > 24 * 5


def test_the_web_process_serves_it_and_slows_down_when_told(tmp_path):
    server = web.process(tmp_path, sites=3, pages=8, slow_s=0.1, seed=5)
    graph = web.grown(sites=3, pages=8, seed=5)
    page = next(page for page in graph.sites[0].pages[1:] if page.kind is small_web.Kind.PAGE and "/p/" in page.url)
    with local.running(server):
        pid = server.pid

        def took_s() -> float:
            began = time.monotonic()
            link = http.client.HTTPConnection(*server.address.split(":"), timeout=10)
            link.request("GET", page.path, headers={"Host": page.host, "User-Agent": "Test/1.0 (+x/n1)"})
            answer = link.getresponse()
            assert answer.status == 200
            assert page.links[0] in answer.read().decode()
            link.close()
            return time.monotonic() - began

        assert took_s() < 1
        os.kill(pid, signal.SIGUSR1)
        assert took_s() >= web.SLOWED_S
        os.kill(pid, signal.SIGUSR2)
        assert took_s() < 1
        link = http.client.HTTPConnection(*server.address.split(":"), timeout=10)
        link.request("GET", "/x", headers={"Host": "nobody.example", "User-Agent": "Test/1.0 (+x/n1)"})
        assert link.getresponse().status == 404
        link.close()
    lines = (tmp_path / web.LOG).read_text().splitlines()
    assert len(lines) == 4
    assert '"node": "n1"' in lines[0]
    assert '"site": "", "url": "http://nobody.example/x", "status": 404' in lines[3]
