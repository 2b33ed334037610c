"""RFC 9309 statement by statement, each by what a real origin was asked for: `test_rep_NN` is row rep-NN of the data.

Statements that bind across sites are in test_robots_elsewhere.py too, with the records that pass between owners.
"""

import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from node import dns
from shared import clock, config, errors
from tests import corpus
from tests.field import stage
from tests.node import name_server, origins
from tests.node.crawler import SITE, Answer, Crawler, Web, crawling, full, hang_up, linking, moved, reply, robots_txt

OK = reply(b"<p>ok")
WWW = f"http://www.{SITE}"
HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
LONG = {"politeness": {"robots_error_ttl_s": HOUR_S}}
Asked = Callable[..., Awaitable[list[str]]]


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    async with made.origin:
        yield made


@pytest.fixture
def asked(valkey: str, web: Web, tmp_path: Path) -> Asked:
    """Seed some paths of one site under a robots.txt; what was asked for besides it, in the order of asking."""

    async def crawl_all(body: str | bytes, *paths: str, agent: str = "Test", **headers: str) -> list[str]:
        raw = body.encode() if isinstance(body, str) else body
        web.put("/robots.txt", reply(raw, kind=headers.pop("kind", "text/plain"), **headers))
        identity = {"user_agent": f"{agent}/1.0 (+https://example.org/bot)"}
        async with crawling(valkey, web, tmp_path, identity=identity) as crawl:
            await crawl.seed(*paths)
            await crawl.run()
            look = await crawl.look()
        assert (look["pending"], look["later"]) == (0, 0)
        assert web.urls[0] == full("/robots.txt")
        return pages(web)

    return crawl_all


def pages(web: Web) -> list[str]:
    return [url.removeprefix(f"http://{SITE}") for url in web.urls if not url.endswith("/robots.txt")]


@contextlib.asynccontextmanager
async def later_on(
    url: str, web: Web, out: Path, *, hours: float, epoch: int = 20, **tables: Any
) -> AsyncIterator[Crawler]:
    """A node on the same store whose store time is that much later."""
    async with crawling(url, web, out, epoch=epoch, **tables) as crawl:
        crawl.tools.store_ms = lambda: clock.wall_ms() + int(hours * HOUR_S * 1000)
        yield crawl


def test_every_statement_has_its_test() -> None:
    rows = {row["id"] for row in corpus.load("robots/rfc9309_statements.json")["statements"]}
    assert len(rows) == 33
    assert rows == {f"rep-{found[1]}" for name in globals() if (found := re.match(r"test_rep_(\d\d)_", name))}


# --- 2.1, 2.2: groups, names, patterns ------------------------------------------------------------------------------


async def test_rep_01_the_file_is_robots_txt_at_the_top_of_every_scheme_host_and_port(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    first, other, port = f"http://{SITE}", WWW, f"http://{SITE}:8080"
    for origin in (first, other, port):
        web.put(f"{origin}/robots.txt", robots_txt("Disallow: /no"))
        web.put(f"{origin}/d/robots.txt", robots_txt("Disallow: /"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed(*(f"{origin}/d/{name}" for origin in (first, other, port) for name in "ab"))
        await crawl.run()
    asked = [url for url in web.urls if "robots" in url.lower()]
    assert sorted(asked) == sorted(f"{origin}/robots.txt" for origin in (first, other, port))
    assert len(web.urls) == 9


async def test_rep_02_a_byte_order_mark_and_another_media_type_hide_no_rule(asked: Asked) -> None:
    assert await asked(b"\xef\xbb\xbfUser-agent: *\nDisallow: /no", "/no", "/yes", kind="text/html") == ["/yes"]


async def test_rep_03_robots_txt_itself_is_always_allowed(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", robots_txt("Disallow: /"))
    for epoch, hours in ((10, 0.0), (20, 25.0)):
        async with later_on(valkey, web, tmp_path, epoch=epoch, hours=hours) as crawl:
            await crawl.seed(f"/{epoch}", "/robots.txt")
            await crawl.run()
    assert web.urls == [full("/robots.txt")] * 3  # asked as rules twice, as a page once
    assert pages(web) == []


async def test_rep_04_the_token_is_letters_and_stands_in_the_header(asked: Asked, web: Web) -> None:
    assert await asked("User-agent: foo_bot-x\nDisallow: /no", "/no", "/yes", agent="Foo_Bot-x") == ["/yes"]
    assert {arrival.headers["user-agent"] for arrival in web.log} == {"foo_bot-x/1.0 (+https://example.org/bot)"}
    for agent in ("Foo2bot/1.0", "F\u00f6o/1.0", "/1.0", "(Foo)/1.0", "Foo.bot/2"):
        with pytest.raises(errors.ConfigError):
            config.require_user_agent(config.Config(identity=config.Identity(user_agent=f"{agent} (a@example.org)")))


async def test_rep_05_names_match_in_any_case(asked: Asked) -> None:
    assert await asked("USER-AGENT: FOOBOT\nDISALLOW: /no\n", "/no", "/yes", agent="foobot") == ["/yes"]


async def test_rep_06_all_groups_of_a_name_are_one(asked: Asked) -> None:
    body = "User-agent: Test\nDisallow: /a\n\nUser-agent: other\nDisallow: /c\n\nUser-agent: test\nDisallow: /b\n"
    assert await asked(body, "/a", "/b", "/c") == ["/c"]


async def test_rep_07_everybodys_group_is_for_those_without_their_own_and_only_for_them(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    body = reply(b"User-agent: *\nDisallow: /a\n\nUser-agent: Test\nDisallow: /b\n", kind="text/plain")
    web.put("/robots.txt", body)
    web.put("http://other.example/robots.txt", reply(b"User-agent: x\nDisallow: /b\n\nUser-agent: *\nDisallow: /a\n"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a", "/b", "http://other.example/a", "http://other.example/b")
        await crawl.run()
    assert sorted(pages(web)) == ["/a", "http://other.example/b"]


async def test_rep_08_without_a_group_for_us_everything_is_allowed(asked: Asked) -> None:
    assert await asked("User-agent: other\nDisallow: /\n", "/a", "/b") == ["/a", "/b"]


async def test_rep_09_agents_in_a_row_share_the_rules_whatever_other_lines_stand_between(asked: Asked) -> None:
    body = "User-agent: Test\nSitemap: ftp://x/s\nUnknown: x\n\nUser-agent: B\nDisallow: /a\n"
    assert await asked(f"{body}User-agent: C\nDisallow: /b\n", "/a", "/b") == ["/b"]


async def test_rep_10_rules_before_any_agent_line_are_ignored(asked: Asked) -> None:
    assert await asked("Disallow: /\nAllow: /a\nUser-agent: *\nDisallow: /a\n", "/a", "/b") == ["/b"]


async def test_rep_11_paths_match_from_the_first_octet_in_their_case_and_with_their_query(asked: Asked) -> None:
    body = "User-agent: *\nDisallow: /x\nDisallow: /q?y=2\n"
    assert await asked(body, "/x", "/X", "/ax", "/x?y=1", "/q?y=1", "/q?y=22") == ["/X", "/ax", "/q?y=1"]


async def test_rep_12_the_longest_match_wins(asked: Asked) -> None:
    body = "User-agent: *\nAllow: /x/\nDisallow: /x/page.html\nDisallow: /*.htm\nAllow: /page\nAllow: /page.h\n"
    assert await asked(body, "/x/page.html", "/x/a", "/page.htm", "/pag.htm") == ["/x/a", "/page.htm"]


async def test_rep_13_of_equal_matches_allow_wins(asked: Asked) -> None:
    assert await asked("User-agent: *\nDisallow: /a\nAllow: /a\nDisallow: /*b\nAllow: /?b\n", "/a", "/cb") == ["/a"]


async def test_rep_14_escapes_are_compared_in_one_spelling(asked: Asked) -> None:
    """The RFC's own table."""
    body = (
        "User-agent: *\nDisallow: /\nAllow: /bar?baz=http://foo.bar\nAllow: /foo/\u30c4\n"
        "Allow: /hex/%E3%82%AB\nAllow: /low/%e3%82%ab\nAllow: /foo/%62%61%7A\nAllow: /a%2fb\n"
    )
    allowed = [
        *("/bar?baz=http%3A%2F%2Ffoo.bar", "/bar?baz=http://foo.bar", "/foo/%E3%83%84", "/hex/%e3%82%ab"),
        *("/low/%E3%82%AB", "/foo/baz", "/a%2Fb"),
    ]
    found = await asked(body, *allowed, "/a/b", "/foo/bay", "/foo/%E3%83%85")
    assert [path.lower() for path in found] == [path.lower() for path in allowed]


async def test_rep_15_comment_end_and_star(asked: Asked) -> None:
    body = "User-agent: * # all\nDisallow: /*.php$ # scripts\nDisallow: /s*t*r\nDisallow: /%24x\nDisallow: /#c\n"
    body += "Allow: /\n"
    barred = ["/a.php", "/star", "/s/t/r/x", "/$x"]
    assert await asked(body, *barred, "/a.php5", "/a.php?x", "/srt") == ["/a.php5", "/a.php?x", "/srt"]


async def test_rep_16_lines_between_junk_are_used(asked: Asked) -> None:
    body = b"<html><body>\n\xff\xfe\x00\x01\n: :\n====\nUser-agent: *\n<p>Disallow: /yes</p>\nDisallow: /no\n</html>"
    assert await asked(body, "/no", "/yes") == ["/yes"]


async def test_rep_17_other_records_are_read_and_do_not_interfere(valkey: str, web: Web, tmp_path: Path) -> None:
    sitemap = f"http://{SITE}/map.xml"
    lines = ["Sitemap: " + sitemap, "Clean-param: a /", "Disallow: /no", "crawl-delay: 0.2", "Host: x", "Disallow: /n2"]
    web.put("/robots.txt", robots_txt(*lines))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/no", "/n2", "/yes")
        await crawl.run()
        known = crawl.tools.rules[SITE, f"http://{SITE}"].rules
        assert (await crawl.look())["delay_ms"] == 200
    assert pages(web) == ["/yes", "/map.xml"]
    assert (known.sitemaps, known.crawl_delay_s) == ((sitemap,), 0.2)
    assert web.gaps_s()[0] >= 0.2


async def test_rep_32_special_characters_are_matched_by_their_escapes(asked: Asked) -> None:
    body = "User-agent: *\nDisallow: /\nAllow: /with-a-%2A.html\nAllow: /%24\nAllow: /%23\n"
    found = await asked(body, "/with-a-*.html", "/with-a-%2A.html", "/with-a-b.html", "/$", "/%23", "/x")
    assert found == ["/with-a-*.html", "/with-a-%2A.html", "/$", "/%23"]


async def test_rep_33_a_last_group_without_rules_allows_everything(asked: Asked) -> None:
    assert await asked("User-agent: *\nDisallow: /\n\nUser-agent: test", "/a", "/b") == ["/a", "/b"]


async def test_rep_29_the_simple_example_and_the_merged_groups(valkey: str, web: Web, tmp_path: Path) -> None:
    simple = corpus.read("robots/crawler-commons/rfc9309-example-simple-robots.txt")
    merging = corpus.read("robots/crawler-commons/rfc9309-example-rule-group-merging.txt")
    everything = {"/publications/a", "/example/page.html", "/example/allowed.gif", "/a.gif", "/example/x", "/x"}
    wanted = {
        "otherbot": {"/publications/a", "/x"},
        "foobot": {"/example/page.html", "/example/allowed.gif"},
        "bazbot": everything - {"/example/page.html"},
        "quxbot": everything,
    }
    for epoch, (agent, allowed) in enumerate(wanted.items(), start=1):
        host = f"http://{agent}.example"
        web.put(f"{host}/robots.txt", reply(simple))
        identity = {"user_agent": f"{agent}/1.0 (+https://example.org/bot)"}
        async with crawling(valkey, web, tmp_path / agent, epoch=epoch, identity=identity) as crawl:
            await crawl.seed(*(f"{host}{path}" for path in sorted(everything)))
            await crawl.run()
        assert {url.removeprefix(host) for url in pages(web) if url.startswith(host)} == allowed
    web.put("/robots.txt", reply(merging))
    identity = {"user_agent": "ExampleBot/1.0 (+https://example.org/bot)"}
    async with crawling(valkey, web, tmp_path / "merging", epoch=9, identity=identity) as crawl:
        await crawl.seed("/foo", "/bar", "/baz", "/other")
        await crawl.run()
    assert pages(web)[-1:] == ["/other"]
    assert not {"/foo", "/bar", "/baz"} & set(pages(web))


async def test_rep_30_the_longest_match_example(asked: Asked) -> None:
    body = corpus.read("robots/crawler-commons/rfc9309-example-longest-match-robots.txt")
    gif, page = "/example/page/disallowed.gif", "/example/page/"
    assert await asked(body, gif, page, agent="foobot") == [page]


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "latin-1"])
async def test_rep_31_a_file_that_is_not_utf8_is_read_as_far_as_it_can_be(asked: Asked, codec: str) -> None:
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff", "latin-1": b""}[codec]
    body = mark + "User-agent: *\n# caf\u00e9\nDisallow: /no\nDisallow: /caf\u00e9\n".encode(codec)
    cafe = "/caf%E9" if codec == "latin-1" else "/caf%C3%A9"
    assert await asked(body, "/no", "/yes", cafe) == ["/yes"]


# --- 2.3: what an answer is worth -----------------------------------------------------------------------------------


async def test_rep_18_rules_of_a_good_answer_are_followed(asked: Asked) -> None:
    assert await asked("User-agent: *\nDisallow: /no\nnonsense\nDisallow: /n2", "/no", "/n2", "/yes") == ["/yes"]


async def test_rep_19_five_redirects_are_followed_across_sites(valkey: str, web: Web, tmp_path: Path) -> None:
    hosts = [f"http://{SITE}", *(f"http://{letter}.example" for letter in "bcdef")]
    for here, there in itertools.pairwise(hosts):
        web.put(f"{here}/robots.txt", moved(f"{there}/robots.txt"))
    web.put(f"{hosts[-1]}/robots.txt", robots_txt("Disallow: /no"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/no", "/yes")
        await crawl.run()
        look = await crawl.look()
    assert pages(web) == ["/yes"]
    assert look["set_aside"] == {"robots": 1}
    assert sorted(web.urls[:-1]) == sorted(f"{host}/robots.txt" for host in hosts)


async def test_rep_20_rules_reached_by_redirects_bind_the_first_host_and_not_the_last(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/robots.txt", moved("http://b.example/rules/here.txt"))
    web.put("http://b.example/rules/here.txt", robots_txt("Disallow: /no"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/no", "/yes", "http://b.example/no")
        await crawl.run()
    assert sorted(pages(web)) == ["/yes", "http://b.example/no", "http://b.example/rules/here.txt"]


async def test_rep_21_more_than_five_redirects_and_a_loop_end_as_unavailable(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/robots.txt", moved("/robots.txt?again"))
    web.put("/robots.txt?again", moved("/robots.txt"))
    for number in range(6):
        web.put(f"{WWW}/{number or 'robots.txt'}", moved(f"{WWW}/{number + 1}"))
    web.put(f"{WWW}/6", robots_txt("Disallow: /"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a", f"{WWW}/a")
        await crawl.run()
        look = await crawl.look()
    assert [url for url in web.urls if url.endswith("/a")] == [full("/a"), f"{WWW}/a"]
    assert len(web.urls) == 2 * 6 + 2
    assert {known["verdict"] for known in look["robots"].values()} == {"allow"}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
async def test_rep_22_unavailable_allows_everything(valkey: str, web: Web, tmp_path: Path, status: int) -> None:
    web.put("/robots.txt", reply(b"User-agent: *\nDisallow: /", status=f"{status} No"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a")
        await crawl.run()
        look = await crawl.look()
    assert pages(web) == ["/a"]
    known = look["robots"][f"http://{SITE}"]
    assert (known["verdict"], known["status"]) == ("allow", status)


async def _cut_short(visitor: origins.Visitor) -> None:
    await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nUser-agent: *\nAllow: /\n")
    visitor.writer.close()


async def _stalled(visitor: origins.Visitor) -> None:
    await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nUser-agent: *\nAllow: /\n")
    await visitor.reader.read()


@pytest.fixture
async def zones() -> AsyncIterator[name_server.NameServer]:
    made = name_server.NameServer()
    made.address = await made.start()  # type: ignore[attr-defined]
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("answer", "resolver"),
    [
        (reply(status="500 Broken"), None),
        (reply(status="599 Broken"), None),
        (reply(status="503 Later"), None),
        (reply(status="429 Too Many"), None),
        (hang_up, None),
        (_cut_short, None),
        (_stalled, None),
        (OK, "127.0.0.1:1"),
        (OK, "broken zone"),
        (OK, "no such name"),
        (OK, None),
    ],
    ids=["500", "599", "503", "429", "closed", "cut", "time-out", "refused", "SERVFAIL", "NXDOMAIN", "no TLS"],
)
async def test_rep_23_unreachable_disallows_everything(
    valkey: str, web: Web, tmp_path: Path, zones: name_server.NameServer, answer: Answer, resolver: str | None
) -> None:
    web.put("/robots.txt", answer)
    zones.broken = {SITE} if resolver == "broken zone" else set()
    dead = None
    if resolver is not None and resolver.startswith("127."):
        dead = dns.Resolver(connect_to=resolver)
    elif resolver is not None:
        dead = dns.Resolver(allow_private=True, nameservers=[zones.address])
    origin = f"http{'s' if answer is OK and dead is None else ''}://{SITE}"
    limits = {"connect_s": 0.3, "first_byte_s": 0.5, "total_s": 0.6}
    async with crawling(valkey, web, tmp_path, resolver=dead, limits=limits, **LONG) as crawl:
        await crawl.seed(f"{origin}/a", f"{origin}/b")
        await crawl.run(lambda: bool(crawl.commits and crawl.commits[-1].later))
        look = await crawl.look()
    assert pages(web) == []
    assert (look["pages"], look["set_aside"]) == (0, {})
    assert {known["verdict"] for known in look["robots"].values()} == {"disallow"}
    assert bool(zones.asked) == (resolver in {"broken zone", "no such name"})


async def test_rep_24_the_last_good_copy_serves_for_thirty_days_and_then_nothing_is_allowed(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/robots.txt", robots_txt("Disallow: /no"), reply(status="500 Broken"))
    days = {10: 0, 20: 2, 30: 29, 40: 31}
    for epoch, day in days.items():
        async with later_on(valkey, web, tmp_path, epoch=epoch, hours=24.0 * day, **LONG) as crawl:
            await crawl.seed(f"/no/{epoch}", f"/yes/{epoch}")
            await crawl.run(lambda: bool(crawl.commits and crawl.commits[-1].done and not crawl.records[-1].pending))
            last = crawl.tools.counts.robots.labels("unreachable" if day == 31 else "last_good")
            assert day == 0 or last._value.get() == 1
    assert pages(web) == ["/yes/10", "/yes/20", "/yes/30"]
    assert len(web.urls) == 4 + 3


async def test_rep_25_a_copy_is_used_for_a_day_and_longer_only_while_the_file_is_unreachable(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/robots.txt", robots_txt("Disallow: /a"), robots_txt("Disallow: /b"), hang_up)
    for epoch, hours in ((10, 0.0), (20, 23.0), (30, 25.0), (40, 50.0)):
        async with later_on(valkey, web, tmp_path, epoch=epoch, hours=hours, **LONG) as crawl:
            await crawl.seed(f"/a/{epoch}", f"/b/{epoch}")
            await crawl.run(lambda: bool(crawl.commits and crawl.commits[-1].done and not crawl.records[-1].pending))
    paths = [url.removeprefix(f"http://{SITE}") for url in web.urls]
    assert paths == ["/robots.txt", "/b/10", "/b/20", "/robots.txt", "/a/30", "/robots.txt", "/a/40"]


async def test_rep_26_cache_control_shortens_the_life_of_a_copy_and_lengthens_nothing(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    rules = b"User-agent: *\nDisallow: /no\n"
    answers = [reply(rules, cache_control="public, max-age=7200"), reply(rules, cache_control="max-age=8640000")]
    web.put("/robots.txt", *answers, reply(rules, cache_control="no-store"))
    for epoch, hours in ((10, 0.0), (20, 1.5), (30, 2.5), (40, 26.0), (50, 27.5), (60, 50.5)):
        async with later_on(valkey, web, tmp_path, epoch=epoch, hours=hours) as crawl:
            await crawl.seed(f"/{epoch}")
            await crawl.run()
    paths = [url.removeprefix(f"http://{SITE}") for url in web.urls]
    again = "/robots.txt"
    # no-store would mean a request before every page: an hour is the least.
    assert paths == [again, "/10", "/20", again, "/30", "/40", again, "/50", again, "/60"]


async def test_rep_27_a_rule_at_byte_511_000_is_obeyed_and_a_file_of_10_mb_costs_no_more(
    asked: Asked, web: Web
) -> None:
    junk = b"# nothing\n" * 51_095
    body = b"User-agent: *\n" + junk + b"Disallow: /early\n" + junk * 20 + b"Disallow: /late\n"
    assert 510_900 < body.index(b"Disallow: /early") < 512_000 - 20
    assert len(body) > 10_000_000
    memory = stage.Memory()
    assert await asked(body, "/early", "/late") == ["/late"]
    assert memory.grown_kib() < 24 * 1024, "the origin holds what it sends, 10 MB"
    assert web.log[0].end_s - web.log[0].start_s < 3
    assert web.origin.resets >= 1, "the origin was not let send all of it"


async def test_rep_28_a_hostile_file_ends_and_its_rules_hold(valkey: str, web: Web, tmp_path: Path) -> None:
    """A line without an end, agents without an end, a pattern of stars against a long path."""
    path = "/" + "ab" * 1_000
    hosts = {
        f"http://{SITE}": b"User-agent: *\nDisallow: /no\n" + b"Disallow: /" + b"*b" * 5_000 + b"c\n" + b"x" * 400_000,
        WWW: b"User-agent: x\n" * 35_000 + b"User-agent: *\nDisallow: /no\n",
        f"http://b.{SITE}": b"User-agent: *\nDisallow: /no\n" + b"x" * 10_000_000,
        f"http://c.{SITE}": b"User-agent: *\nDisallow: /no\n" + b"User-agent: x\n" * 1_000_000 + b"Disallow: /\n",
        f"http://a.{SITE}": b"User-agent: *\nDisallow: /no\nDisallow: /" + b"a*" * 900 + b"zz\n" + b"<br>" * 100_000,
    }
    for host, body in hosts.items():
        web.put(f"{host}/robots.txt", reply(body))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed(*(f"{host}{where}" for host in hosts for where in ("/no", path)))
        await crawl.run(within_s=20)
    assert sorted(url for url in web.urls if not url.endswith("/robots.txt")) == sorted(host + path for host in hosts)


# --- what an operator sees ------------------------------------------------------------------------------------------


async def test_a_crawl_delay_beyond_the_ceiling_is_seen_in_the_record_the_log_and_the_metrics(
    valkey: str, web: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web.put("/robots.txt", robots_txt("Crawl-delay: 3600"))
    async with crawling(valkey, web, tmp_path, politeness={"delay_cap_s": 0.2}) as crawl:
        await crawl.seed("/a")
        await crawl.run()
        look = await crawl.look()
        metrics = crawl.tools.counts.render().decode()
    assert (look["delay_ms"], look["delay_term"]) == (200, "crawl_delay_capped")
    assert "crawlring_capped_crawl_delays_total 1.0" in metrics
    assert 'crawlring_robots_answers_total{answer="rules"} 1.0' in metrics
    told = capsys.readouterr()
    assert "robots.crawl_delay_capped" in told.out + told.err


@pytest.mark.parametrize("status", [401, 403])
async def test_a_forbidden_robots_txt_forbids_everything_where_the_setting_says_so(
    valkey: str, web: Web, tmp_path: Path, status: int
) -> None:
    web.put("/robots.txt", reply(status=f"{status} No"))
    async with crawling(valkey, web, tmp_path, politeness={"robots_forbidden": "deny"}) as crawl:
        await crawl.seed("/a", "/b")
        await crawl.run()
        look = await crawl.look()
        metrics = crawl.tools.counts.render().decode()
    assert pages(web) == []
    assert look["set_aside"] == {"robots_forbidden": 2}
    assert 'crawlring_robots_answers_total{answer="forbidden"} 1.0' in metrics


async def test_every_link_under_thousands_of_patterns_is_judged_as_one_by_one(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    """Judged in steps, remembered, and the same verdicts as ever."""
    patterns = [f"Disallow: /*x{number}*y$" for number in range(3_000)]
    web.put("/robots.txt", robots_txt(*patterns))
    web.put("/", linking("/ax7by", "/ax7bz", "/x2999y", "/x3000y"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/")
        await crawl.run()
    assert pages(web) == ["/", "/ax7bz"]  # x3000y holds x300 and y
