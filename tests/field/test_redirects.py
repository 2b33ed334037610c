"""Field cases of redirects: each hop is a URL of its own, judged before it is asked for, and every chain ends."""

from shared import urls
from tests.field.stage import OK, Scene, archived, case, moved, outcomes, reply
from tests.node.crawler import robots_txt
from tests.node.test_ssrf import listening


@case("redirect-empty-host")
async def test_a_redirect_without_a_host_is_a_bad_redirect(scene: Scene) -> None:
    scene.put("/a", moved("http://"))
    scene.put("/b", moved("https://:443/"))
    scene.put("/c", moved(f"http:///{scene.site}/d"))  # the URL standard passes over the third slash
    scene.put("/d", OK)
    async with scene.crawl(archive={"warc": True}) as crawl:
        await scene.seed(crawl, "/a", "/b", "/c")
        await crawl.run()
        assert scene.stage.paths == ["/a", "/b", "/c", "/d"]
        assert await scene.aside(crawl) == {"bad_redirect": 2}
        pages = crawl.pages()
    assert [pages[scene.url(path)].status for path in ("/a", "/b", "/c", "/d")] == [301, 301, 301, 200]
    held = archived(scene.out)
    for location in (b"http://", b"https://:443/"):
        assert b"\r\nlocation: %s\r\n\r\n" % location in held, "the 301 is archived"


@case("redirect-no-location")
async def test_a_redirect_without_a_location_leads_nowhere_and_is_no_robots_txt(scene: Scene) -> None:
    nowhere = reply(status="302 Moved Temporarily", kind="text/html;charset=UTF-8")
    www = f"http://www.{scene.site}"
    scene.put("/p", nowhere)
    scene.put(f"{www}/robots.txt", nowhere)
    scene.put(f"{www}/q", OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/p", f"{www}/q")
        await crawl.run(lambda: len(scene.stage.log) >= 4)
        look = await crawl.look(scene.site)
    assert look["set_aside"] == {"bad_redirect": 1}
    robots = look["robots"][www]
    assert robots["verdict"] == "disallow", "unreachable by a rule, and no body parsed"
    asked = [one.url for one in scene.stage.log]
    assert asked.count(scene.url("/p")) == 1
    assert asked.count(f"{www}/robots.txt") == 2, "asked again, and nothing of its host before there is an answer"
    assert f"{www}/q" not in asked


@case("redirect-location-utf8-bytes")
async def test_raw_utf8_in_a_location_is_escaped_once(scene: Scene) -> None:
    escaped = "/fa/news/1815565/%D8%A7%D8%B9%D8%B2%D8%A7%D9%85"
    raw = "HTTP/1.1 301 Moved Permanently\r\nContent-Length: 0\r\nLocation: /fa/news/1815565/اعزام\r\n\r\n".encode()
    scene.put("/p", raw)
    scene.put(escaped, OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run()
        assert outcomes(crawl, scene.url(escaped)) == ["fetched"]
    assert [one.line for one in scene.stage.log] == ["/robots.txt", "/p", escaped]


@case("redirect-location-quoted-scheme")
async def test_a_quoted_scheme_is_a_relative_path(scene: Scene) -> None:
    scene.put("/p", moved("http%3A//scrapytest.org/a%C3%A7%C3%A3o"))
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run()
    assert [one.url for one in scene.stage.log] == [
        scene.url("/robots.txt"),
        scene.url("/p"),
        scene.url("/http%3A//scrapytest.org/a%C3%A7%C3%A3o"),
    ]


@case("redirect-userinfo-loop")
async def test_userinfo_makes_no_url_new_and_the_loop_ends(scene: Scene) -> None:
    scene.put("/", moved(f"http://bourospan@{scene.site}"))
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/")
        await crawl.run()
        look = await crawl.look(scene.site)
        most = crawl.settings.limits.redirects_max + 1
    assert look["set_aside"] == {"redirect_loop": 1}
    assert (look["pending"], look["later"], look["seen"]) == (0, 0, 1)
    assert 1 <= len(scene.stage.paths) <= most
    assert set(scene.stage.paths) == {"/"}
    assert all(one.header("authorization") is None for one in scene.stage.log)
    assert urls.canonical(f"http://bourospan@{scene.site}") == scene.url("/")


@case("redirect-self-cookie")
async def test_a_redirect_to_itself_ends_as_a_loop_and_not_without_an_outcome(scene: Scene) -> None:
    scene.put("/p", reply(status="302 Found", location="/p", set_cookie="seen=1; Path=/"))
    scene.put("/after", OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/p", "/after")
        await crawl.run()
        look = await crawl.look(scene.site)
        most = crawl.settings.limits.redirects_max + 1
        assert outcomes(crawl, scene.url("/after")) == ["fetched"]
    assert look["set_aside"] == {"redirect_loop": 1}
    assert (look["pending"], look["later"]) == (0, 0)
    assert 1 <= len(scene.stage.asked("/p")) <= most
    assert all(one.header("cookie") is None for one in scene.stage.log)


@case("redirect-two-locations")
async def test_two_locations_that_differ_are_refused_and_equal_ones_followed_once(scene: Scene) -> None:
    head = "HTTP/1.1 301 Moved Permanently\r\nContent-Length: 0\r\nLocation: /a\r\nLocation: {}\r\n\r\n"
    scene.put("/differ", head.format("/b").encode())
    scene.put("/equal", head.format("/a").encode())
    scene.put("/a", OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/differ")
        await crawl.run()
        assert scene.stage.paths == ["/differ"]
        assert await scene.aside(crawl) == {"bad_redirect": 1}
        await scene.seed(crawl, "/equal")
        await crawl.run()
    assert scene.stage.paths == ["/differ", "/equal", "/a"]


@case("redirect-nonhttp")
async def test_a_redirect_to_another_scheme_opens_nothing(scene: Scene) -> None:
    with listening() as (port, accepted):
        targets = [
            "file:///etc/passwd",
            f"gopher://127.0.0.1:{port}/_FLUSHALL",
            "bluesky://d:i:d",
            "call:+380",
            "steam:code",
        ]
        for number, target in enumerate(targets):
            scene.put(f"/{number}", moved(target))
        async with scene.crawl() as crawl:
            await scene.seed(crawl, *(f"/{number}" for number in range(len(targets))))
            await crawl.run()
            assert await scene.aside(crawl) == {"redirect_to_unsupported_scheme": len(targets)}
            assert await crawl.store.site_count() == 1
        assert accepted() == 0
    assert scene.stage.paths == [f"/{number}" for number in range(len(targets))]


@case("redirect-hop-policy")
async def test_each_hop_is_judged_before_it_is_asked_for(scene: Scene) -> None:
    target = f"http://target-{scene.site}"
    scene.put("/robots.txt", robots_txt("Disallow: /private/"))
    scene.put(f"{target}/robots.txt", robots_txt("Disallow: /no", "Crawl-delay: 0.3"))
    scene.put("/a", moved("/private/b", "302 Found"))
    scene.put("/b", moved(f"{target}/1", "302 Found"))
    scene.put("/c", moved(f"{target}/2", "302 Found"))
    scene.put("/d", moved(f"{target}/no", "302 Found"))
    scene.put("/e", moved(f"{target}/out/1", "302 Found"))
    scene.put("/f", moved(f"http://outside-{scene.site}/", "302 Found"))
    for path in ("/1", "/2", "/no", "/out/1"):
        scene.put(f"{target}{path}", OK)
    scene.put("/private/b", OK)
    async with scene.crawl(scope={"deny": (f"{target}/out/", f"outside-{scene.site}")}) as crawl:
        await scene.seed(crawl, "/a", "/b", "/c", "/d", "/e", "/f")
        await crawl.run()
        assert await scene.aside(crawl) == {"robots": 1}
        assert await crawl.store.site_count() == 2, "what is out of scope is not even kept"
        assert await scene.aside(crawl, f"target-{scene.site}") == {"robots": 1}
    assert scene.stage.paths == ["/a", "/b", "/c", "/d", "/e", "/f"]
    assert not [one for one in scene.stage.log if "outside" in one.url]
    hops = [one for one in scene.stage.log if one.url.startswith(target)]
    assert [one.line for one in hops] == ["/robots.txt", "/1", "/2"]
    assert hops[2].start_s - hops[1].end_s >= 0.3
    assert hops[1].start_s - hops[0].end_s >= 0.3
