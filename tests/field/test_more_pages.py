"""More pages of an odd web, beside the listed cases: which of its URLs are links, and what closes a page to us."""

import pytest

from node import dns, links
from tests.field.stage import OK, Names, Scene, linking, reply


@pytest.mark.parametrize(
    ("markup", "found"),
    [
        ('<!-- <a href="/c"> --><a href="/x">', ["/x"]),
        ('<script>document.write("<a href=/s>")</script><a href="/x">', ["/x"]),
        ('<style><a href="/s"></style><textarea><a href="/t"></textarea><a href="/x">', ["/x"]),
        ('<noscript><a href="/x"></noscript>', ["/x"]),
        ('<a href="data:text/html,hi"><a href="blob:http://h/1"><a href="mailto:a@b"><a href="/x">', ["/x"]),
        ('<a href="javascript:void(0)"><a href=" JavaScript:1"><a href="java\nscript:1"><a href="/x">', ["/x"]),
        ('<a href="#top"><a href=""><a href><a><a href="/x">', ["/x"]),
        ('<base href="/deep/er/"><a href="../x">', ["/deep/x"]),
        ('<base href="data:,"><base href="/no/"><a href="x">', ["/dir/x"]),
        ('<base target="_top"><base href="/b/"><base href="/c/"><a href="x">', ["/b/x"]),
        ('<a rel="nofollow" href="/n"><a rel="noopener,NoFollow" href="/o"><a rel="ugc sponsored" href="/x">', ["/x"]),
        ("<A HREF=/x CLASS=y><a href='/y' href='/z'>", ["/x", "/y"]),
        ('<area href="/x"><iframe src="/y"></iframe><frame src="/z">', ["/x", "/y", "/z"]),
        ('<a href="/a&amp;b&copy=1&lt;">', ["/a&b&copy=1%3C"]),
        (
            '<a href="http://[::1">bad</a><a href="http://a b/">bad</a><a href="http://h:99999/">bad</a><a href="/x">',
            ["/x"],
        ),
        ('<a href="/%00"><a href="/x?a=b%2Fc#d">', ["/%00", "/x?a=b%2Fc"]),
        ('<link rel="stylesheet" href="/s.css"><img src="/i.png"><form action="/f"></form><a href="/x">', ["/x"]),
        ("<a href=/x", []),
        ('<meta name="robots" content="noindex,follow"><a href="/x">', ["/x"]),
        ('<meta name="robots" content="index nofollow"><a href="/x">', []),
        ('<META NAME=ROBOTS CONTENT=NONE><a href="/x">', []),
        ('<meta name="otherbot" content="nofollow"><a href="/x">', ["/x"]),
        ('<meta name="test" content="nofollow"><a href="/x">', []),
    ],
)
def test_what_of_a_page_is_a_link(markup: str, found: list[str]) -> None:
    page = links.extract(
        markup.encode(), content_type="text/html", url="http://h.test/dir/p", links_max=50, token="Test"
    )
    assert [url.removeprefix("http://h.test") for url in page.links] == found


@pytest.mark.parametrize(
    ("value", "closed"),
    [
        ("nofollow", True),
        ("NoIndex, NoFollow", True),
        ("noindex nofollow", True),
        ("none", True),
        ("test: nofollow", True),
        ("*: nofollow", True),
        ("otherbot: nofollow", False),
        ("otherbot: noindex, nofollow", False),
        ("otherbot: noindex, test: nofollow", True),
        ("max-snippet:-1, max-image-preview:large, nofollow", True),
        ("unavailable_after: Wed, 03 Dec 2025 13:09:53 PST, nofollow", True),
        ("unavailable_after: Wednesday, 03-Dec-25 13:09:53 PST", False),
        ("nofollowing, no-follow, follow", False),
        ("", False),
    ],
)
def test_x_robots_tag_closes_the_links_of_a_page_to_whom_it_names(value: str, closed: bool) -> None:
    assert links.robots_directives((value,), "Test")[1] is closed


async def test_a_feed_that_says_nofollow_is_not_followed_and_a_sitemap_is(scene: Scene) -> None:
    feed = b'<rss version="2.0"><channel><item><link>%s</link></item></channel></rss>'
    scene.put("/robots.txt", reply(f"Sitemap: {scene.url('/map.xml')}".encode(), kind="text/plain"))
    scene.put("/feed", reply(feed % scene.url("/shut").encode(), x_robots_tag="noindex, nofollow"))
    scene.put("/open", reply(feed % scene.url("/found").encode(), x_robots_tag="noindex"))
    urlset = f"<urlset><url><loc>{scene.url('/listed')}</loc></url></urlset>".encode()
    scene.put("/map.xml", reply(urlset, x_robots_tag="noindex, nofollow"))
    scene.put("/p", linking("/closed", x_robots_tag="nofollow"))
    for path in ("/shut", "/found", "/listed", "/closed"):
        scene.put(path, OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/feed", "/open", "/p")
        await crawl.run()
    assert sorted(scene.stage.paths) == ["/feed", "/found", "/listed", "/map.xml", "/open", "/p"]


@pytest.mark.parametrize("host", ["abcdefghijklmnop.onion", "name.alt", "www.sub.onion"])
async def test_names_of_other_networks_are_not_looked_up(scene: Scene, host: str) -> None:
    resolver = Names(scene.stage, nameservers=["127.0.0.1:9"])
    scene.put("/p", linking(f"http://{host}/"))
    async with scene.crawl(resolver=resolver) as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run()
        site = ".".join(host.split(".")[-2:])
        assert await scene.aside(crawl, site) == {"not_dns": 1}


@pytest.mark.parametrize("url", ["http://h.test:0/", "http://h.test:22/", "http://h.test:6000/"])
async def test_ports_of_other_protocols_are_refused(scene: Scene, url: str) -> None:
    with pytest.raises(dns.ForbiddenError, match="port"):
        await dns.Resolver(nameservers=["127.0.0.1:9"]).lookup("h.test", int(url.split(":")[2][:-1]))
