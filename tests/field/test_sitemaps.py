"""Field cases of sitemaps: they end, they cost no memory, and they speak for their own site alone."""

from shared import keys
from tests.field.stage import OK, Memory, Scene, case, moved, outcomes, reply
from tests.node.crawler import Crawler, robots_txt

NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


def urlset(*entries: str, head: str = "") -> bytes:
    """A sitemap of URLs, each of which may bring more elements."""
    inner = "".join(f"<url>{entry if '<loc>' in entry else f'<loc>{entry}</loc>'}</url>" for entry in entries)
    return reply(f'{head}<urlset xmlns="{NAMESPACE}">{inner}</urlset>'.encode(), kind="application/xml")


def index(*sitemaps: str) -> bytes:
    inner = "".join(f"<sitemap><loc>{one}</loc></sitemap>" for one in sitemaps)
    return reply(f'<sitemapindex xmlns="{NAMESPACE}">{inner}</sitemapindex>'.encode(), kind="application/xml")


@case("sitemap-robots-loop")
async def test_sitemaps_that_lead_in_circles_are_each_read_once(scene: Scene) -> None:
    hosts = {name: f"http://{name}-{scene.site}" for name in ("robots", "index", "moved")}
    scene.put(f"{hosts['robots']}/robots.txt", robots_txt(f"Sitemap: {hosts['robots']}/robots.txt"))
    scene.put(f"{hosts['robots']}/p", OK)
    around = [f"{hosts['index']}/sitemap_{number}.xml" for number in (1, 2, 3)]
    scene.put(f"{hosts['index']}/robots.txt", robots_txt(f"Sitemap: {around[0]}"))
    for one, following in zip(around, [*around[1:], around[0]], strict=True):
        scene.put(one, index(following, f"{hosts['index']}/pages.xml"))
    scene.put(f"{hosts['index']}/pages.xml", urlset(f"{hosts['index']}/found"))
    scene.put(f"{hosts['index']}/found", OK)
    scene.put(f"{hosts['moved']}/robots.txt", robots_txt(f"Sitemap: {hosts['moved']}/parent.xml"))
    scene.put(f"{hosts['moved']}/parent.xml", index(f"{hosts['moved']}/child.xml"))
    scene.put(f"{hosts['moved']}/child.xml", moved(f"{hosts['moved']}/parent.xml"))
    async with scene.crawl() as crawl:
        await scene.seed(crawl, *(f"{host}/p" for host in hosts.values()))
        await crawl.run()
        assert outcomes(crawl, f"{hosts['index']}/found") == ["fetched"]
    asked = [one.url for one in scene.stage.log]
    assert {url: asked.count(url) for url in asked if asked.count(url) > 1} == {}
    assert {*around, f"{hosts['moved']}/parent.xml", f"{hosts['moved']}/child.xml"} <= set(asked)


@case("sitemap-entity-bomb")
async def test_entities_are_not_expanded_and_the_other_sitemaps_go_on(scene: Scene) -> None:
    lines = ['<!ENTITY l0 "lol">', *(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 11))]
    bomb = urlset(
        f"<loc>{scene.url('/p?')}&l10;</loc>", head=f"<?xml version='1.0'?><!DOCTYPE lolz [{''.join(lines)}]>"
    )
    names = [scene.url(f"/{name}.xml") for name in ("bomb", "good")]
    scene.put("/robots.txt", robots_txt(*(f"Sitemap: {name}" for name in names)))
    scene.put("/bomb.xml", bomb)
    scene.put("/good.xml", urlset(scene.url("/found")))
    scene.put("/found", OK)
    memory = Memory()
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/start")
        await crawl.run()
    assert memory.grown_kib() < 20 * 1024
    assert {"/bomb.xml", "/found", "/good.xml", "/start"} <= set(scene.stage.paths)
    assert not [path for path in scene.stage.paths if "lol" in path], "an entity was expanded"


@case("sitemap-foreign-host")
async def test_a_sitemap_is_not_believed_about_another_site(scene: Scene) -> None:
    foreign = f"http://foreign-{scene.site}"
    now = "<lastmod>2026-11-30T00:00:00Z</lastmod>"
    entries = [f"<loc>{url}</loc>{now}" for url in (f"{foreign}/page", f"{foreign}/linked", scene.url("/own"))]
    scene.put("/robots.txt", robots_txt(f"Sitemap: {scene.url('/sitemap.xml')}"))
    scene.put("/sitemap.xml", urlset(*entries))
    scene.put(f"{foreign}/robots.txt", robots_txt("Disallow: /linked/"))
    for url in ("/own", f"{foreign}/page", f"{foreign}/linked"):
        scene.put(url, OK)
    recrawl = {"enabled": True, "interval_min_s": 3_000.0, "interval_start_s": 3_600.0}
    async with scene.crawl(recrawl=recrawl) as crawl:
        await scene.seed(crawl, f"{foreign}/page")
        await crawl.run(lambda: bool(outcomes(crawl, f"{foreign}/page")))
        before = await wanted(crawl, f"foreign-{scene.site}")
        await scene.seed(crawl, "/start")
        await crawl.run(lambda: bool(outcomes(crawl, scene.url("/own"))) and bool(outcomes(crawl, f"{foreign}/linked")))
        after = await wanted(crawl, f"foreign-{scene.site}")
    assert len(before) == 1
    assert before.items() <= after.items(), "when it is looked at again was told by another site"
    foreign_log = [one.line for one in scene.stage.log if one.url.startswith(foreign)]
    assert foreign_log == ["/robots.txt", "/page", "/linked"], "a link like any other, under its own site's rules"


async def wanted(crawl: Crawler, site: str) -> dict[bytes, float]:
    """When the store wants each page of a site to be looked at again."""
    (flat,) = await crawl.store._trip([("ZRANGE", keys.RedisKeys("visits").fresh(site), 0, -1, "WITHSCORES")])
    return {name: float(score) for name, score in zip(flat[::2], flat[1::2], strict=True)}
