"""Nothing outside the scope is ever requested, by the origin's own log: links, redirects, seeds, and what came later."""

import pytest

from shared import scope
from tests.node import crawler
from tests.node.crawler import Web, full


@pytest.fixture
async def web():
    served = Web()
    async with served.origin:
        yield served


def asked(web: Web) -> list[str]:
    """Pages only."""
    return [url for url in web.urls if not url.endswith("/robots.txt")]


async def aside(node: crawler.Crawler, site: str = crawler.SITE) -> dict[str, int]:
    return (await node.store.look(site) or {}).get("set_aside", {})


async def bounded(node: crawler.Crawler, *rules: scope.SeedRule) -> None:
    await node.store.add_scopes(rules)
    await node.steering.read(node.store)


async def test_links_and_redirects_that_leave_the_scope_are_not_asked_for(web, valkey, tmp_path):
    web.put("/", crawler.linking("/in/a", "/out", "/in/moved", "/in/private/x"))
    web.put("/in/a", crawler.linking("/in/b"))
    web.put("/in/moved", crawler.moved("/out"))
    tables = {"scope": {"allow": ("~^http://[a-z.]+/(in/.*)?$",), "deny": ("http://example.com/in/private/",)}}
    async with crawler.crawling(valkey, web, tmp_path, **tables) as node:
        await node.seed("/")
        await node.run()
        assert await aside(node) == {}, "what is out of scope is not queued in the first place"
    assert sorted(asked(web)) == [full(path) for path in ("/", "/in/a", "/in/b", "/in/moved")]


async def test_depth_is_counted_in_links_from_a_seed(web, valkey, tmp_path):
    web.put("/", crawler.linking("/1", "/hop"))
    web.put("/hop", crawler.moved("/1b"))
    web.put("/1", crawler.linking("/2"))
    web.put("/1b", crawler.linking("/2b"))
    web.put("/2", crawler.linking("/3"))
    async with crawler.crawling(valkey, web, tmp_path, scope={"depth_max": 1}) as node:
        await node.seed("/")
        await node.run()
    assert sorted(asked(web)) == [full(path) for path in ("/", "/1", "/1b", "/hop")]


async def test_a_rule_that_came_after_the_offer_holds_before_the_request(web, valkey, tmp_path):
    web.put("/", crawler.linking("/a", "/b"))
    async with crawler.crawling(valkey, web, tmp_path) as node:
        await node.seed("/")
        await node.run(lambda: full("/") in web.urls and bool(node.commits))
        await bounded(node, scope.seed_rule("page", full("/a"), crawler.SITE))
        await node.run()
        assert await aside(node) == {scope.SEED: 1}
    assert asked(web) == [full("/"), full("/a")]


async def test_a_seeds_own_scope_bounds_what_is_followed_from_any_page(web, valkey, tmp_path):
    web.put("/docs/", crawler.linking("/docs/a", "/news", "http://example.org/other"))
    web.put("/docs/a", crawler.linking("/docs/b?x"))
    async with crawler.crawling(valkey, web, tmp_path) as node:
        await bounded(node, scope.seed_rule("prefix", full("/docs/"), crawler.SITE))
        await node.seed("/docs/")
        await node.run()
    assert sorted(asked(web)) == [full(path) for path in ("/docs/", "/docs/a", "/docs/b?x")]


async def test_a_sites_budget_of_pages_sets_the_rest_aside(web, valkey, tmp_path):
    web.put("/", crawler.linking(*(f"/{number}" for number in range(8))))
    async with crawler.crawling(valkey, web, tmp_path, scope={"pages_per_site": 3}) as node:
        await node.seed("/")
        await node.run()
        assert await aside(node) == {scope.PAGES: 6}
    assert len(asked(web)) == 3


async def test_a_sites_budget_of_bytes_sets_the_rest_aside(web, valkey, tmp_path):
    web.put("/", crawler.linking(*(f"/{number}" for number in range(8))))
    for number in range(8):
        web.put(f"/{number}", crawler.reply(b"x" * 1_000))
    async with crawler.crawling(valkey, web, tmp_path, scope={"bytes_per_site": 2_000}) as node:
        await node.seed("/")
        await node.run()
        assert set(await aside(node)) == {scope.BYTES}
    assert len(asked(web)) == 3


async def test_of_an_unwanted_type_the_headers_are_all_that_is_read(web, valkey, tmp_path):
    web.put("/", crawler.linking("/image", "/page"))
    web.put("/image", crawler.reply(b"\x89PNG" * 100, kind="image/png"))
    web.put("/page", crawler.reply(b"<title>p</title>", kind="text/html; charset=utf-8"))
    async with crawler.crawling(valkey, web, tmp_path, scope={"content_types": ("text/*",)}) as node:
        await node.seed("/")
        await node.run()
        lines = node.pages()
    assert (lines[full("/image")].truncated, lines[full("/image")].bytes) == ("type", 0)
    assert lines[full("/page")].truncated is None


async def test_robots_txt_is_asked_for_even_where_the_scope_is_one_page(web, valkey, tmp_path):
    web.put("/docs/", crawler.linking("/docs/a"))
    web.put("/robots.txt", crawler.robots_txt("Disallow: /docs/a"))
    async with crawler.crawling(valkey, web, tmp_path, scope={"allow": ("http://example.com/docs/",)}) as node:
        await node.seed("/docs/")
        await node.run()
    assert web.urls == [full("/robots.txt"), full("/docs/")]
