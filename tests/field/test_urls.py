"""Field cases of URLs: as the URL standard says, in the page, in the frontier and on the wire."""

import pytest

from shared import urls
from tests.field.stage import OK, Names, Scene, case, linking, moved, outcomes, reply
from tests.node.crawler import PLACES

LONG = "a123456789012345678901234567890123456789012345678901234567890123"


@case("idn-label-long")
async def test_a_link_with_a_label_too_long_is_dropped_and_counted_and_the_others_kept(scene: Scene) -> None:
    scene.put("/p", linking("/one", f"http://{LONG}/", f"http://www.{LONG}.{scene.site}/x", "/two"))
    scene.put("/moved", moved(f"http://{LONG}/"))
    for page in ("/one", "/two", "/after"):
        scene.put(page, OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/p", "/moved", "/after")
        await crawl.run()
        page = crawl.pages()[scene.url("/p")]
        assert page.bad_links == 2
        assert list(page.links) == [scene.url("/one"), scene.url("/two")]
        assert (await scene.aside(crawl)) == {"bad_redirect": 1}
        assert await crawl.store.site_count() == 1
    assert sorted(scene.stage.paths) == ["/after", "/moved", "/one", "/p", "/two"]


@case("host-underscore")
async def test_a_host_with_an_underscore_is_fetched(scene: Scene) -> None:
    host = f"http://sloneczne_stablowice.{scene.site}"
    scene.put("/p", linking(f"{host}/"))
    scene.put(f"{host}/", OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run()
        assert outcomes(crawl, f"{host}/") == ["fetched"]
    assert scene.stage.log[-1].header("host") == f"sloneczne_stablowice.{scene.site}"


@case("ipv6-literal")
async def test_an_ipv6_literal_keeps_its_brackets_everywhere(scene: Scene) -> None:
    assert urls.canonical("https://[2402:4E00:40:40:0:0:2:3b6]:80/") == "https://[2402:4e00:40:40::2:3b6]:80/"
    host, address = "[2402:4e00:40:40::2:3b6]", "2402:4e00:40:40::2:3b6"
    page = f"http://{host}:8080/p"
    scene.put("/p", linking(page, "http://[::1]/", f"http://[::1]:{scene.stage.origin.port}/"))
    scene.put(page, OK)
    resolver = Names(scene.stage, hosts=[address])
    async with scene.crawl(resolver=resolver) as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run()
        assert outcomes(crawl, page) == ["fetched"]
        assert await scene.aside(crawl, "[::1]") == {"private_address": 2}
        look = await crawl.look(host)
        assert look["robots"].keys() == {f"http://{host}:8080"}
    assert PLACES.site_of(page) == host
    assert [one.header("host") for one in scene.stage.log[2:]] == [f"{host}:8080"] * 2
    assert [one.url for one in scene.stage.log[2:]] == [f"http://{host}:8080/robots.txt", page]
    assert address in resolver.asked


@pytest.mark.parametrize("told", ["header", "meta"])
@case("url-nonutf8-query")
async def test_a_query_is_in_the_pages_encoding_and_a_path_in_utf8(scene: Scene, told: str) -> None:
    meta = '<meta charset="windows-1251">' if told == "meta" else ""
    text = f'{meta}<title>поиск</title><a href="/search?q=привет&p=/п">x</a><a href="/п">y</a>'
    kind = "text/html" if told == "meta" else "text/html; charset=windows-1251"
    scene.put("/p", reply(text.encode("windows-1251"), kind=kind))
    wanted = ["/search?q=%EF%F0%E8%E2%E5%F2&p=/%EF", "/%D0%BF"]
    for path in wanted:
        scene.put(path, OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run()
        assert crawl.pages()[scene.url("/p")].title == "поиск"
    assert [one.line for one in scene.stage.log[2:]] == wanted


@case("url-tabs-newlines")
async def test_tabs_and_newlines_stand_for_nothing_in_a_link(scene: Scene) -> None:
    split = f"ex\r\nample.{scene.site}\t "
    scene.put("/p", linking(f" h\nt\r\ntp://{split}", f"http:\\\\{scene.site}\\back\\slash", "\x01/trimmed\x1f "))
    wanted = [f"http://example.{scene.site}/", scene.url("/back/slash"), scene.url("/trimmed")]
    for url in wanted:
        scene.put(url, OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run()
        assert list(crawl.pages()[scene.url("/p")].links) == wanted
    asked = [one.url for one in scene.stage.log if one.line != "/robots.txt"]
    assert sorted(asked) == sorted([scene.url("/p"), *wanted])
