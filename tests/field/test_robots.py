"""Field cases of robots.txt: what cannot be had disallows, what is odd is read as RFC 9309 says."""

import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from node import dns
from shared import clock
from tests import certificates
from tests.field.stage import OK, Names, Scene, Stage, case, moved, outcomes, reply, sending
from tests.field.test_dns_tls import server_of
from tests.node.crawler import Crawler, robots_txt
from tests.node.test_ssrf import listening

ORIGIN = {"robots_error_ttl_s": 0.3}


@contextlib.contextmanager
def full_port() -> Iterator[int]:
    """A port whose connections are never made: its listener's queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(2):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        yield address[1]


class OnceElsewhere(Names):
    """The first connection to one host goes to another port."""

    host, port = "", 0

    async def lookup(self, host: str, port: int) -> dns.Address:
        found = await super().lookup(host, port)
        return dns.Address("127.0.0.1", self.port) if host == self.host and self.asked.count(host) == 1 else found


@case("robots-timeout")
async def test_a_robots_txt_that_times_out_disallows_for_now_and_is_asked_for_again(scene: Scene) -> None:
    www = f"http://www.connect-{scene.site}"
    stalls = sending(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n", b"", pause_s=0.6)
    scene.put("/robots.txt", stalls, robots_txt("Disallow: /no"))
    scene.put(f"{www}/robots.txt", robots_txt("Disallow: /no"))
    pages = [scene.url("/yes"), scene.url("/no"), f"{www}/yes", f"{www}/no"]
    for page in pages:
        scene.put(page, OK)
    resolver = OnceElsewhere(scene.stage)
    limits = {"connect_s": 0.3, "first_byte_s": 0.3, "total_s": 0.4}
    with full_port() as resolver.port:
        resolver.host = f"www.connect-{scene.site}"
        async with scene.crawl(resolver=resolver, politeness=ORIGIN, limits=limits) as crawl:
            await scene.seed(crawl, *pages)
            await crawl.run()
            said = [line.outcome for line in crawl.lines() if line.url == f"{www}/robots.txt"]
            assert await scene.aside(crawl) == {"robots": 1}
            assert await scene.aside(crawl, f"connect-{scene.site}") == {"robots": 1}
    assert said == ["failed:timeout", "fetched"]
    own = [one.url for one in scene.stage.log if scene.site in one.url and "connect" not in one.url]
    assert own == [scene.url("/robots.txt"), scene.url("/robots.txt"), scene.url("/yes")]
    first, again = scene.stage.asked("/robots.txt")
    assert again.start_s - first.start_s >= 0.3
    assert [one.url for one in scene.stage.log if one.url.startswith(www)] == [f"{www}/robots.txt", f"{www}/yes"]


@case("robots-429")
async def test_a_429_for_robots_txt_is_no_permission_and_its_retry_after_holds(scene: Scene) -> None:
    scene.put("/robots.txt", reply(status="429 Too Many Requests", retry_after="1"), robots_txt("Disallow: /no"))
    scene.put("/yes", OK)
    scene.put("/no", OK)
    async with scene.crawl(politeness=ORIGIN) as crawl:
        await scene.seed(crawl, "/yes", "/no")
        await crawl.run(lambda: len(crawl.commits) == 1)
        look = await crawl.look(scene.site)
        assert (look["due_term"], look["set_aside"]) == ("retry_after", {})
        await crawl.run()
    assert scene.stage.paths == ["/yes"]
    first, again = scene.stage.asked("/robots.txt")
    assert again.start_s - first.end_s >= 1.0


@pytest.mark.parametrize("forbidden", ["allow", "deny"])
@case("robots-403")
async def test_a_403_for_robots_txt_is_a_decision_that_shows(scene: Scene, forbidden: str) -> None:
    scene.put("/robots.txt", reply(b"<title>Just a moment...</title>", status="403 Forbidden"))
    scene.put("/p", OK)
    async with scene.crawl(politeness={"robots_forbidden": forbidden}) as crawl:
        await scene.seed(crawl, "/p")
        await crawl.run(lambda: len(crawl.commits) >= 2)
        look = await crawl.look(scene.site)
        counted = exposed(crawl)
    assert scene.stage.paths == (["/p"] if forbidden == "allow" else [])
    robots = look["robots"][f"http://{scene.site}"]
    assert (robots["status"], robots["verdict"]) == (403, "allow" if forbidden == "allow" else "disallow")
    assert [line for line in counted if "forbidden" in line and not line.endswith(" 0.0")], "no counter tells of it"
    assert look["set_aside"] == ({"robots_forbidden": 1} if forbidden == "deny" else {})


def exposed(crawl: Crawler) -> list[str]:
    """The node's metrics as they are read."""
    return [
        f"{sample.name} {sample.labels} {sample.value}"
        for family in crawl.tools.counts.registry.collect()
        for sample in family.samples
    ]


@case("robots-redirect-cross-domain")
async def test_a_robots_txt_may_move_to_another_site_and_binds_the_first(scene: Scene) -> None:
    target = f"http://target-{scene.site}"
    www = f"http://www.target-{scene.site}"
    filler = "# " + "x" * 97 + "\n"
    long = "User-agent: *\nDisallow: /no\n" + filler * 5_200 + "\nDisallow: /yes\n" + filler * 5_000
    far, dead = f"http://far-{scene.site}", f"http://dead-{scene.site}"
    scene.put("/robots.txt", moved(f"{target}/robots.txt"))
    scene.put(f"{target}/robots.txt", moved(f"{www}/robots.txt"))
    scene.put(f"{www}/robots.txt", reply(long.encode(), kind="text/plain"))
    for hop in range(7):
        scene.put(f"{far}{f'/{hop}' if hop else '/robots.txt'}", moved(f"{far}/{hop + 1}"))
    pages = [scene.url("/yes"), scene.url("/no"), f"{far}/yes"]
    for page in [*pages, f"{dead}/p"]:
        scene.put(page, OK)
    async with scene.crawl(politeness=ORIGIN, limits={"body_bytes_max": 1_000}) as crawl:
        await scene.seed(crawl, *pages)
        # The first site waits for the second's owner to have asked.
        barred = (scene.url("/no"), "robots")
        await crawl.run(
            lambda: (
                all(outcomes(crawl, url) for url in (scene.url("/yes"), f"{far}/yes"))
                and any(barred in change.set_aside for change in crawl.commits)
            )
        )
        assert await scene.aside(crawl) == {"robots": 1}
    with listening() as (port, accepted):
        scene.put(f"{dead}/robots.txt", moved(f"http://127.0.0.1:{port}/robots.txt"))
        async with scene.crawl(node="n2", epoch=20, politeness={"robots_error_ttl_s": 3_600.0}) as crawl:
            await scene.seed(crawl, f"{dead}/p")
            await crawl.run(lambda: bool(waits(crawl, f"{dead}/p")))
            assert waits(crawl, f"{dead}/p")[0] <= 60, "another site answers sooner than a dead one comes back"
        assert accepted() == 0
    urls = [one.url for one in scene.stage.log]
    assert scene.url("/no") not in urls
    assert f"{dead}/p" not in urls
    assert urls.count(f"{www}/robots.txt") == urls.count(scene.url("/robots.txt")) == 1
    assert urls.index(f"{www}/robots.txt") < urls.index(scene.url("/yes"))
    assert len([url for url in urls if url.startswith(far)]) == 7, "robots.txt, five hops, and the page"


def waits(crawl: Crawler, url: str) -> list[float]:
    """For how long a URL was put off, each time."""
    return [one[1] for change in crawl.commits for one in change.later if one[0] == url]


@case("robots-too-big")
async def test_the_first_500_kib_of_a_robots_txt_count_whatever_its_size(scene: Scene) -> None:
    www = f"http://www.{scene.site}"
    limit = 500 * 1024
    head = "User-agent: *\nDisallow: /first\n"
    last = "Disallow: /last\n"
    cut = "Disallow: /cut-here-and-no-further\n"
    filler = "Disallow: /filler-of-a-size-of-its-own\n"
    room = limit - len(head) - len(last) - len("Disallow: /cut")
    text = head + filler * (room // len(filler)) + "#" * (room % len(filler) - 1) + "\n" + last + cut
    assert text[:limit].endswith("Disallow: /cut")
    text += filler * (900_000 // len(filler)) + "Disallow: /beyond\n"
    scene.put("/robots.txt", reply(text.encode(), kind="text/plain"))
    endless = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nUser-agent: *\nDisallow: /first\n"
    scene.put(f"{www}/robots.txt", sending(endless, b"Disallow: /filler\n" * 1_000, forever=True))
    paths = ["/first", "/last", "/cut", "/cut-here", "/beyond"]
    pages = [*map(scene.url, paths), f"{www}/first", f"{www}/second"]
    for page in pages:
        scene.put(page, OK)
    async with scene.crawl(limits={"body_bytes_max": 1_000}) as crawl:
        await scene.seed(crawl, *pages)
        await crawl.run()
        assert await scene.aside(crawl) == {"robots": 3}
    assert sorted(scene.stage.paths) == ["/beyond", "/cut", "/cut-here"]
    assert [one.line for one in scene.stage.log if one.url.startswith(www)] == ["/robots.txt", "/second"]


@case("robots-agent-prefix")
async def test_the_product_token_is_compared_whole_and_without_case(scene: Scene) -> None:
    everyone = "\nUser-agent: *\nAllow: /\n"
    groups = {
        "bot": ("User-agent: bot\nDisallow: /", True),
        "mybot-news": ("User-agent: mybot-news\nDisallow: /", True),
        "case": ("User-agent: MyBot\nDisallow: /", False),
        "cut": ("User-agent: mybot/2.1 (see our page)\nDisallow: /", False),
    }
    for name, (group, _) in groups.items():
        scene.put(
            f"http://{name}.{scene.site}/robots.txt", reply((group + "\n" + everyone).encode(), kind="text/plain")
        )
        scene.put(f"http://{name}.{scene.site}/p", OK)
    async with scene.crawl(identity={"user_agent": "mybot/1.0 (+https://example.org/bot)"}) as crawl:
        await scene.seed(crawl, *(f"http://{name}.{scene.site}/p" for name in groups))
        await crawl.run()
    for name, (_, allowed) in groups.items():
        assert len(scene.stage.asked(f"http://{name}.{scene.site}/p")) == allowed, name


@case("robots-crawl-delay-huge")
async def test_a_crawl_delay_is_read_as_a_number_and_cut_at_the_ceiling(scene: Scene) -> None:
    ceiling_s = 0.5
    values = {
        "86400": (ceiling_s, {"crawl_delay_capped"}),
        "0.2": (0.2, {"crawl_delay"}),
        "-1": (0.0, {"minimum"}),
        "10s": (0.0, {"minimum"}),
        "": (0.0, {"minimum"}),
        "1e9": (ceiling_s, {"crawl_delay_capped"}),
    }
    sites = {value: f"{number}-{scene.site}" for number, value in enumerate(values)}
    for value, site in sites.items():
        scene.put(f"http://{site}/robots.txt", robots_txt(f"Crawl-delay: {value}"))
        scene.put(f"http://{site}/a", OK)
        scene.put(f"http://{site}/b", OK)
    async with scene.crawl(politeness={"delay_cap_s": ceiling_s}) as crawl:
        await scene.seed(crawl, *(f"http://{site}/{page}" for site in sites.values() for page in "ab"))
        await crawl.run()
        for value, (least_s, terms) in values.items():
            look = await crawl.look(sites[value])
            assert look["pages"] == 2, value
            assert look["due_term"] in terms, value
            log = [one for one in scene.stage.log if one.url.startswith(f"http://{sites[value]}/")]
            assert [one.line for one in log] == ["/robots.txt", "/a", "/b"]
            assert min(log[1].start_s - log[0].end_s, log[2].start_s - log[1].end_s) >= least_s, value


@case("robots-port-and-scheme")
async def test_robots_txt_is_of_scheme_host_and_port(scene: Scene, authority: certificates.Authority) -> None:
    other_port = f"http://{scene.site}:8080"
    scene.put(f"{other_port}/robots.txt", robots_txt("Disallow: /private/"))
    scene.put(f"{other_port}/private/x", OK)
    scene.put(f"{other_port}/public", OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, f"{other_port}/private/x", f"{other_port}/public")
        await crawl.run()
        assert await scene.aside(crawl) == {"robots": 1}
    assert [one.url for one in scene.stage.log] == [f"{other_port}/robots.txt", f"{other_port}/public"]
    pair = authority.sign("schemes", alt=f"DNS:schemes-{scene.site}")
    stage = Stage(f"schemes-{scene.site}", server_of({f"schemes-{scene.site}": tuple(pair)}))
    secured = Scene(scene.name, stage, scene.store, scene.out)
    plain, secure = f"http://schemes-{scene.site}", f"https://schemes-{scene.site}"
    stage.put(f"{secure}/robots.txt", robots_txt("Disallow: /private/"))
    for origin in (plain, secure):
        stage.put(f"{origin}/private/x", OK)
    trust = ssl.create_default_context(cafile=str(authority.ca))
    async with stage.open(), secured.crawl(resolver=Names(stage), trust=trust, node="n2", epoch=20) as crawl:
        await secured.seed(crawl, f"{plain}/private/x", f"{secure}/private/x")
        await crawl.run()
        assert await secured.aside(crawl) == {"robots": 1}
    assert sorted(one.url for one in stage.log) == [f"{plain}/private/x", f"{plain}/robots.txt", f"{secure}/robots.txt"]


@case("robots-bom-and-cr")
async def test_a_byte_order_mark_is_passed_over_and_cr_ends_a_line(scene: Scene) -> None:
    ends = {"cr": b"\r", "lf": b"\n", "crlf": b"\r\n"}
    for name, end in ends.items():
        body = b"\xef\xbb\xbf" + end.join([b"User-agent: *", b"Disallow: /x", b""])
        scene.put(f"http://{name}.{scene.site}/robots.txt", reply(body, kind="text/plain"))
        scene.put(f"http://{name}.{scene.site}/x", OK)
        scene.put(f"http://{name}.{scene.site}/y", OK)
    began_s = clock.boot_s()
    async with scene.crawl() as crawl:
        await scene.seed(crawl, *(f"http://{name}.{scene.site}/{page}" for name in ends for page in "xy"))
        await crawl.run()
        assert await scene.aside(crawl) == {"robots": 3}
    assert sorted(one.line for one in scene.stage.log) == ["/robots.txt"] * 3 + ["/y"] * 3
    assert scene.stage.log[0].start_s >= began_s
