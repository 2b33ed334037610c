"""More redirects of an odd web, beside the listed cases: where a Location points, and what is asked for then."""

from tests.field.stage import OK, Scene, linking, moved, outcomes, reply, sending
from tests.node.crawler import robots_txt

LOCATIONS = {
    "/{}#part": "/{}",
    "../up/./{}": "/up/{}",
    "to{}": "/dir/to{}",
    "./{}?x=1 2": "/dir/{}?x=1%202",
    "?only={}": "/dir/13?only={}",
    "//HOST/{}": "/{}",
    "\\\\HOST\\{}": "/{}",
    "/b {}": "/b%20{}",
    "/%7e%c3%a9{}": "/~%C3%A9{}",
    "/a/../../{}": "/{}",
    "/a/%2e%2e/{}": "/{}",
    "/%2F%5C{}": "/%2F%5C{}",
    "HTTP://UPPER:80/{}": "/{}",
    "http:in{}": "/dir/in{}",
    "http:/{}": "/{}",
    "http://user:pw@HOST/{}": "/{}",
    "http://HOST./{}": "/{}",
    "/{};x=1;y?z=%zz": "/{};x=1;y?z=%zz",
    "/{}|^`": "/{}|%5E%60",
    "\t/{}\t": "/{}",
    "/\x01{}": "/%01{}",
    "/\x00{}": None,
}


async def test_a_location_is_read_as_browsers_read_it(scene: Scene) -> None:
    wanted = []
    for number, (location, path) in enumerate(LOCATIONS.items(), start=9):
        written = location.format(number).replace("HOST", scene.site).replace("UPPER", scene.site.upper())
        scene.put(f"/dir/{number}", moved(written))
        if path is not None:
            wanted.append(path.format(number))
    for path in wanted:
        scene.put(path, OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, *(f"/dir/{number}" for number in range(9, 9 + len(LOCATIONS))))
        await crawl.run(lambda: set(wanted) <= set(scene.stage.paths), within_s=12.0)
        assert all(outcomes(crawl, scene.url(path)) == ["fetched"] for path in wanted)
    assert sorted(scene.stage.paths) == sorted([*wanted, *(f"/dir/{n}" for n in range(9, 9 + len(LOCATIONS)))])


async def test_every_redirect_is_one_request_and_its_target_is_judged(scene: Scene) -> None:
    scene.put("/robots.txt", robots_txt("Disallow: /private"))
    starts = []
    for status in ("300 Multiple Choices", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"):
        start = f"/{status[:3]}"
        starts.append(start)
        scene.put(start, moved(f"{start}/b", status))
        scene.put(f"{start}/b", moved(f"/private{start}", status))
        scene.put(f"/private{start}", OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, *starts)
        await crawl.run()
        assert await scene.aside(crawl) == {"robots": 4}
    assert sorted(scene.stage.paths) == sorted(starts + [f"{start}/b" for start in starts])


async def test_a_redirect_round_and_round_ends(scene: Scene) -> None:
    other = f"http://www.{scene.site}"
    scene.put("/a", moved(f"{other}/a"))
    scene.put(f"{other}/a", moved(scene.url("/a/")))
    scene.put("/a/", moved("/a?1"))
    scene.put("/a?1", moved("/a#2"))
    for number in range(1, 9):
        scene.put(f"/grow/{number}", moved(f"/grow/{number + 1}"))
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/a", "/grow/1")
        await crawl.run()
        assert (await scene.aside(crawl)) == {"redirect_loop": 1}
    asked = [one.url for one in scene.stage.log]
    assert len(asked) == len(set(asked))
    assert asked.count(scene.url("/grow/6")) == 1
    assert scene.url("/grow/7") not in asked


async def test_a_redirect_to_a_url_that_is_a_trap_leads_nowhere(scene: Scene) -> None:
    scene.put("/a", moved("/" + "x" * 5_000))
    scene.put("/b", moved("/same" * 9))
    scene.put("/c", sending(b"HTTP/1.1 301 Moved\r\nLocation: /d\r\n\r\n", b"endless " * 2_000, forever=True))
    scene.put("/d", OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/a", "/b", "/c")
        await crawl.run(within_s=10.0)
    assert sorted(scene.stage.paths) == ["/a", "/b", "/c", "/d"]


async def test_refresh_leads_on_and_a_reload_does_not(scene: Scene) -> None:
    scene.put("/a", reply(b"<title>a</title>", refresh="0; url=/header"))
    for number, said in enumerate(
        ("300", "15", "0;", "5; url=", "5;URL='/meta'", "1.5, /comma", " 0 ;url = /space", "7x")
    ):
        scene.put(f"/m{number}", linking(head=f'<meta http-equiv="Refresh" content="{said}">'))
    for path in ("/header", "/meta", "/comma", "/space"):
        scene.put(path, OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/a", *(f"/m{number}" for number in range(8)))
        await crawl.run(within_s=12.0)
    assert sorted(scene.stage.paths) == sorted(
        ["/a", "/header", "/meta", "/comma", "/space", *(f"/m{number}" for number in range(8))]
    )
