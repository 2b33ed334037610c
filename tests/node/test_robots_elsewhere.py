"""A robots.txt that has moved to another site: its owner asks, the answer binds the first site, nobody else's is asked."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st

from node import dns, robots_moves
from shared import clock, keys, records
from tests.node.crawler import SITE, Crawler, Web, crawling, full, linking, moved, reply, robots_txt, score_of

OK = reply(b"<p>ok")
HERE = f"http://{SITE}"
THERE = "http://other.example"
FILE = f"{THERE}/robots.txt"
DAY_MS = 86_400_000
TTLS = {"robots_ttl_s": 86_400.0, "robots_error_ttl_s": 3_600.0}


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    async with made.origin:
        yield made


@contextlib.asynccontextmanager
async def two_nodes(url: str, web: Web, out: Path) -> AsyncIterator[tuple[Crawler, Crawler, str]]:
    """n1 owns the one site, n2 another, on one store; and the other's name."""
    async with (
        crawling(url, web, out, node="n1", elsewhere={"anything.example": "n2"}) as here,
        crawling(url, web, out, node="n2", elsewhere={SITE: "n1"}) as there,
    ):
        names = (f"site{number}.example" for number in range(1_000))
        other = next(name for name in names if {here.owned.owner_of(name), there.owned.owner_of(name)} == {"n2"})
        yield here, there, other


def pages(web: Web) -> list[str]:
    return [url for url in web.urls if not url.endswith("/robots.txt")]


def waiting(crawl: Crawler) -> Callable[[], bool]:
    """The first site's URLs have been put off."""
    return lambda: bool(crawl.commits and crawl.commits[-1].later)


async def test_each_owner_asks_its_own_site_and_the_rules_bind_the_first(valkey: str, web: Web, tmp_path: Path) -> None:
    async with two_nodes(valkey, web, tmp_path) as (here, there, other):
        origin, file = f"http://{other}", f"http://{other}/robots.txt"
        web.put("/robots.txt", moved(file))
        web.put(file, robots_txt("Disallow: /no", "Crawl-delay: 0.9"))
        await here.seed("/no", "/yes", "/yes2")
        await here.run(waiting(here))
        look = await here.look()
        assert web.urls == [full("/robots.txt")]
        assert (look["later"], look["pages"], look["set_aside"]) == (3, 0, {})
        known = look["robots"][HERE]
        assert (known["verdict"], known["status"], known["moved_to"]) == ("disallow", 301, file)
        assert here.tools.counts.robots.labels("elsewhere")._value.get() == 1

        await there.run(lambda: bool(there.commits))
        assert web.urls == [full("/robots.txt"), file]
        assert (await there.look(other))["robots"][origin]["verdict"] == "rules"

        await here.run()
        look = await here.look()
        mine, theirs = await here.store.robots(SITE, HERE), await here.store.robots(other, origin)
    assert [url for url in web.urls if url.startswith(HERE)] == [full("/robots.txt"), full("/yes"), full("/yes2")]
    assert look["set_aside"] == {"robots": 1}
    assert mine is not None
    assert theirs is not None
    assert (mine.verdict, mine.body, mine.status, mine.moved_to) == ("rules", theirs.body, 200, file)
    assert mine.expires_ms <= theirs.expires_ms
    assert (look["delay_ms"], look["delay_term"]) == (900, "crawl_delay")
    assert min(web.gaps_s()) >= 0.9  # also before the first page: the delay came without a request
    assert {line.visit for line in there.lines() if line.node == "n2"} == {"robots"}


async def test_what_is_known_there_already_is_used_without_another_request(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/robots.txt", moved(FILE))
    web.put(FILE, robots_txt("Disallow: /no"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed(f"{THERE}/a")
        await crawl.run()
        await crawl.seed("/no", "/yes")
        await crawl.run()
    assert web.urls == [FILE, f"{THERE}/a", full("/robots.txt"), full("/yes")]


async def test_other_origins_of_the_site_go_on_meanwhile(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", moved(FILE))
    async with crawling(valkey, web, tmp_path, elsewhere={"other.example": "n2"}) as crawl:
        await crawl.seed("/a", f"http://www.{SITE}/b")
        await crawl.run(lambda: bool(pages(web)) and bool(crawl.records[-1].later))
        assert (await crawl.look())["pending"] == 0
    assert pages(web) == [f"http://www.{SITE}/b"]


async def test_a_file_of_another_name_needs_its_own_origins_permission(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", moved(f"{THERE}/shared/robots"))
    web.put(f"http://third.example{'/robots.txt'}", moved(f"{THERE}/private/robots"))
    web.put(FILE, robots_txt("Disallow: /private"))
    web.put(f"{THERE}/shared/robots", moved("/shared/rules"))
    web.put(f"{THERE}/shared/rules", robots_txt("Disallow: /no"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/no", "/yes", "http://third.example/a")
        await crawl.run(lambda: full("/yes") in web.urls and len(crawl.tools.rules) == 3)
        there = await crawl.look("other.example")
        third = await crawl.store.robots("third.example", "http://third.example")
    assert [url for url in web.urls if url.startswith(THERE)] == [
        FILE,
        *(f"{THERE}/shared/{name}" for name in ("robots", "rules")),
    ]
    assert there["robots"].keys() == {THERE, f"{THERE}/shared/robots", f"{THERE}/private/robots"}
    assert there["set_aside"] == {"robots": 1}
    assert third is not None
    assert third.verdict == "disallow"
    assert not [url for url in pages(web) if "third" in url]


async def test_two_files_that_point_at_each_other_end_as_unavailable(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", moved(FILE))
    web.put(FILE, moved(full("/robots.txt")))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a", f"{THERE}/b")
        await crawl.run()
        look = await crawl.look()
    assert sorted(web.urls) == sorted([full("/robots.txt"), FILE, full("/a"), f"{THERE}/b"])
    assert look["robots"][HERE]["verdict"] == "allow"


async def test_a_sixth_site_is_not_asked(valkey: str, web: Web, tmp_path: Path) -> None:
    hosts = [HERE, *(f"http://{letter}.example" for letter in "bcdefg")]
    for at, there in enumerate(hosts[1:]):
        web.put(f"{hosts[at]}/robots.txt", moved(f"{there}/robots.txt"))
    web.put(f"{hosts[-1]}/robots.txt", robots_txt("Disallow: /"))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed("/a")
        await crawl.run()
        look = await crawl.look()
        assert pages(web) == [full("/a")]
        assert f"{hosts[-1]}/robots.txt" not in web.urls
        assert look["robots"][HERE]["verdict"] == "allow"  # RFC 9309 2.3.1.2: unavailable

        await crawl.seed(f"{hosts[-2]}/x")  # which is one redirect from the last, and bound by it
        await crawl.run()
        assert (await crawl.look(f"{hosts[-2][7:]}"))["set_aside"] == {"robots": 1}
    assert pages(web) == [full("/a")]


@pytest.mark.parametrize("good", [False, True], ids=["never read", "last good copy"])
async def test_a_dead_site_makes_the_first_one_unreachable(
    valkey: str, web: Web, tmp_path: Path, *, good: bool
) -> None:
    web.put("/robots.txt", *([robots_txt("Disallow: /no")] if good else []), moved(FILE))
    web.put(FILE, reply(status="500 Broken"))
    async with crawling(valkey, web, tmp_path, politeness={"robots_error_ttl_s": 3_600.0}) as crawl:
        if good:
            await crawl.seed("/first")
            await crawl.run()
        crawl.tools.store_ms = lambda: clock.wall_ms() + DAY_MS
        await crawl.seed("/no", "/yes")
        await crawl.run(lambda: FILE in web.urls and any(commit.later for commit in crawl.commits))
        crawl.tools.store_ms = lambda: clock.wall_ms() + DAY_MS + 16_000  # the pause between two looks is over
        await crawl.seed("/no2", "/yes2")
        await crawl.run(lambda: not crawl.owned.sites[SITE].record.pending)
        look = await crawl.look()
    assert look["robots"][HERE]["verdict"] == ("rules" if good else "disallow")
    assert [url for url in pages(web) if "yes" in url or "no" in url] == ([full("/yes2")] if good else [])


async def test_a_private_address_is_never_asked_and_its_origin_waits(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", moved("http://192.168.0.9/robots.txt"))
    async with crawling(valkey, web, tmp_path, elsewhere={"192.168.0.9": "n2"}) as crawl:
        await crawl.seed("/a")
        await crawl.run(waiting(crawl))
    async with crawling(valkey, web, tmp_path, node="n2", epoch=20, resolver=dns.Resolver()) as strict:
        await strict.run(lambda: any(commit.set_aside for commit in strict.commits))
        barred = await strict.look("192.168.0.9")
        assert strict.lines() == []
        assert (await strict.look())["robots"][HERE]["verdict"] == "disallow"
    assert barred["set_aside"] == {"private_address": 1}
    assert web.urls == [full("/robots.txt")]


async def test_unanswered_for_an_hour_it_is_unreachable_and_then_asked_for_again(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put("/robots.txt", moved(FILE), robots_txt())
    async with crawling(valkey, web, tmp_path, elsewhere={"other.example": "n2"}) as crawl:
        await crawl.seed("/a")
        await crawl.run(waiting(crawl))
        crawl.tools.store_ms = lambda: clock.wall_ms() + 3_601_000
        await crawl.run(lambda: crawl.tools.counts.robots.labels("unreachable")._value.get() == 1)
        assert web.urls == [full("/robots.txt")]
        await crawl.run()
    assert web.urls == [full("/robots.txt"), full("/robots.txt"), full("/a")]


# --- the pure part --------------------------------------------------------------------------------------------------


def waits(**more: object) -> records.RobotsRecord:
    return records.RobotsRecord(
        **{"verdict": "disallow", "moved_to": FILE, "moved_ms": DAY_MS, "fetched_ms": DAY_MS, "moved_hops": 1} | more  # type: ignore[arg-type]
    )


def answered(**more: object) -> records.RobotsRecord:
    return records.RobotsRecord(
        **{"verdict": "rules", "body": b"x", "status": 200, "expires_ms": 2 * DAY_MS, "good_ms": DAY_MS} | more  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("url", "key"),
    [
        (FILE, THERE),
        (f"{FILE}?", f"{FILE}?"),
        (f"{THERE}/a/robots.txt", f"{THERE}/a/robots.txt"),
        (f"{THERE}:8080/robots.txt", f"{THERE}:8080"),
    ],
)
def test_an_origins_own_file_is_kept_under_the_origin_and_any_other_under_its_url(url: str, key: str) -> None:
    assert robots_moves.key_of(url) == key
    assert robots_moves.of_origin(key) is (key != url)


@pytest.mark.parametrize(
    ("theirs", "hops", "after_ms", "verdict", "expires_ms"),
    [
        (answered(), 1, 1_000, "rules", 2 * DAY_MS),
        (answered(expires_ms=DAY_MS + 9_000), 1, 1_000, "rules", DAY_MS + 9_000),
        (answered(expires_ms=9 * DAY_MS), 5, 1_000, "rules", 2 * DAY_MS),
        (answered(verdict="allow", body=b"", status=404), 1, 1_000, "allow", 2 * DAY_MS),
        (answered(verdict="disallow", body=b"", status=503, good_ms=0), 1, 1_000, "disallow", 2 * DAY_MS),
        (answered(expires_ms=DAY_MS), 1, 1_000, "waits", DAY_MS + 16_000),
        (None, 1, 1_000, "waits", DAY_MS + 16_000),
        (None, 6, 1_000, "allow", 2 * DAY_MS),
        (None, 1, 3_600_000, "disallow", DAY_MS + 7_200_000),
    ],
)
def test_the_other_sites_record_is_worth(
    theirs: records.RobotsRecord | None, hops: int, after_ms: int, verdict: str, expires_ms: int
) -> None:
    found = robots_moves.taken_over(waits(), theirs, hops=hops, now_ms=DAY_MS + after_ms, **TTLS)
    assert ("waits" if found.moved_ms else found.verdict) == verdict
    assert found.expires_ms == expires_ms
    assert found.moved_to == FILE


@given(
    expires_ms=st.integers(0, 3 * DAY_MS), now_ms=st.integers(DAY_MS, 3 * DAY_MS), hops=st.integers(0, 9),
    verdict=st.sampled_from(["rules", "allow", "disallow"]),
)  # fmt: skip
def test_nothing_is_taken_over_that_has_expired_and_nothing_lasts_longer_than_there(
    expires_ms: int, now_ms: int, hops: int, verdict: str
) -> None:
    theirs = answered(expires_ms=expires_ms, verdict=verdict)
    found = robots_moves.taken_over(waits(), theirs, hops=hops, now_ms=now_ms, **TTLS)
    if hops <= robots_moves.HOPS_MAX and found.verdict != "disallow":
        assert now_ms < expires_ms
        assert found.expires_ms <= min(expires_ms, 2 * DAY_MS)


def test_the_last_good_copy_waits_with_the_record() -> None:
    kept = answered()
    found = robots_moves.moved(FILE, hops=1, status=302, previous=kept, now_ms=2 * DAY_MS, robots_error_ttl_s=3_600.0)
    assert (found.verdict, found.body, found.good_ms) == ("disallow", kept.body, kept.good_ms)
    late = robots_moves.taken_over(found, None, hops=1, now_ms=2 * DAY_MS + 3_600_000, **TTLS)
    assert (late.verdict, late.body, late.moved_ms) == ("rules", kept.body, 0)


async def test_a_site_to_whose_file_many_others_point_is_asked_for_it_once(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put(FILE, robots_txt("Disallow: /no"))
    many = [f"http://many{number}.example" for number in range(6)]
    for origin in many:
        web.put(f"{origin}/robots.txt", moved(FILE))
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed(*(f"{origin}/{path}" for origin in many for path in ("no", "yes")))
        await crawl.run(lambda: len(pages(web)) == len(many), within_s=20.0)
    assert web.urls.count(FILE) == 1
    assert [url for url in web.urls if url.startswith(THERE)] == [FILE]
    assert sorted(pages(web)) == sorted(f"{origin}/yes" for origin in many)


async def test_a_flood_of_files_that_others_name_does_not_go_before_a_sites_own_pages(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    flood = [f"{THERE}/x{number}" for number in range(12)]
    for number, target in enumerate(flood):
        web.put(f"http://h{number}.{SITE}/robots.txt", moved(target))
    own = [f"{THERE}/p{number}" for number in range(6)]
    async with crawling(valkey, web, tmp_path) as crawl:
        await crawl.seed(*(f"http://h{number}.{SITE}/" for number in range(len(flood))), *own)
        await crawl.run(lambda: web.urls.count(own[-1]) == 1, within_s=20.0)
    asked = [url for url in web.urls if url in {*own, *flood}]
    assert [url for url in asked if url in own] == own
    assert len(asked) - len(own) <= 2


async def test_a_record_of_the_other_site_that_cannot_be_read_is_as_none(valkey: str, web: Web, tmp_path: Path) -> None:
    web.put("/robots.txt", moved(FILE))
    async with crawling(valkey, web, tmp_path, elsewhere={"other.example": "n2"}) as crawl:
        client = redis.asyncio.from_url(valkey, protocol=2)
        try:
            await client.set(keys.RedisKeys(crawl.store.cluster).robots("other.example"), "no hash")
        finally:
            await client.aclose()
        await crawl.seed("/a", f"http://www.{SITE}/b")
        await crawl.run(lambda: bool(pages(web)) and bool(crawl.records[-1].later))
        look = await crawl.look()
    assert pages(web) == [f"http://www.{SITE}/b"]
    assert look["robots"][HERE]["verdict"] == "disallow"
    assert web.urls.count(full("/robots.txt")) == 1


async def test_a_page_that_others_redirect_their_robots_txt_to_is_still_a_page_of_its_site(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    """As a domain does that was given up for another: all of it leads to the other's home page."""
    home = f"{THERE}/"
    web.put("/robots.txt", moved(home))
    web.put("/", moved(home))
    web.put(home, linking("/more"))
    often = {"enabled": True, "interval_min_s": 0.6, "interval_start_s": 0.6, "visits_per_page_day": 1e6}
    async with crawling(valkey, web, tmp_path, recrawl=often) as crawl:
        await crawl.seed("/")
        await crawl.run(lambda: f"{THERE}/more" in web.urls)
        assert crawl.pages()[home].links == (f"{THERE}/more",)
        offer = records.Offer(url=home, site="other.example", score=score_of("other.example"), again=True, meta="r.1")
        await crawl.store.offer([offer], owner_of=crawl.owned.owner_of, pages_max=1_000)
        visits = len([line for line in crawl.lines() if line.url == home and line.visit == "recrawl"])
        await crawl.run(
            lambda: len([line for line in crawl.lines() if line.url == home and line.visit == "recrawl"]) > visits + 1
        )
