"""A page's store work is one call on one server: what it takes, what it costs, and what it may not lose."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import hypothesis
import pytest
import redis.asyncio
from hypothesis import strategies as st

from shared import errors, frontier, keys, packing, records, urls
from tests.stores import shapes

DIGEST = b"0123456789abcdef0123"
WHERE = records.ContentRef(url=shapes.url(1), fetched_ms=1)


@pytest.fixture
async def raw(store: str) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis.from_url(store, protocol=2) as client:
        yield client


@pytest.fixture(params=[True, False], ids=["together", "apart"])
async def page_desk(request: pytest.FixtureRequest, desk: frontier.Frontier) -> frontier.Frontier:
    """As on one server, and as on a Redis Cluster."""
    assert desk._together
    desk._together = request.param
    return desk


def owner_of(site: str) -> str | None:
    return None if site == "nobody.org" else "n1"


async def begun(desk: frontier.Frontier) -> records.SiteRecord:
    await shapes.offered(desk, shapes.offer(0), owner_of=owner_of)
    await desk.empty_inbox("n1", 10)
    return await shapes.claimed(desk, delay_s=0.0)


async def committed(
    desk: frontier.Frontier, record: records.SiteRecord, offers: Sequence[records.Offer], *, n: int = 1
) -> records.Committed:
    return await desk.commit(
        shapes.SITE, "n1", 1, n, shapes.done(*record.head[:1]), offers=offers, owner_of=owner_of, pages_max=1_000_000,
        remember=(DIGEST, WHERE),
    )  # fmt: skip


async def indexed(desk: frontier.Frontier) -> set[str]:
    ranges = [(shard, 0, 2**48 - 1) for shard in range(keys.INDEX_SHARDS)]
    return {site async for page in desk.sites_in(ranges) for site in page}


async def test_a_commit_takes_the_pages_links_and_remembers_its_content(page_desk: frontier.Frontier) -> None:
    record = await begun(page_desk)
    offers = [
        shapes.offer(0),
        shapes.offer(1),
        shapes.offer(1, "a.org"),
        shapes.offer(2),
        shapes.offer(1, "nobody.org"),
    ]
    answer = await committed(page_desk, record, offers)
    assert answer.verdicts == ("known", "accepted", "accepted", "accepted", "accepted")
    assert shapes.heads(answer.record) == [shapes.url(1), shapes.url(2)]
    assert await page_desk.content(DIGEST) == WHERE
    assert await indexed(page_desk) == {shapes.SITE, "a.org", "nobody.org"}
    assert await page_desk.inbox("n1", at_most=10) == ["a.org"]
    await page_desk.tell_owners(lambda _site: "n2")  # whoever it turns out to be
    assert await page_desk.inbox("n2", at_most=10) == ["nobody.org"]


async def test_a_repeat_takes_nothing_twice_and_hints_nobody_again(page_desk: frontier.Frontier) -> None:
    record = await begun(page_desk)
    offers = [shapes.offer(1), shapes.offer(1, "a.org")]
    await committed(page_desk, record, offers)
    again = await committed(page_desk, record, offers)
    assert (again.repeated, again.verdicts) == (True, ("known", "known"))
    assert await page_desk.inbox("n1", at_most=10) == ["a.org"]
    assert (await page_desk.look("a.org") or {})["pending"] == 1


async def test_links_of_a_fenced_commit_are_kept(page_desk: frontier.Frontier) -> None:
    record = await begun(page_desk)
    await shapes.claimed(page_desk, "n2", 2)
    with pytest.raises(errors.StaleEpoch):
        await committed(page_desk, record, [shapes.offer(1), shapes.offer(1, "a.org")])
    assert await indexed(page_desk) == {shapes.SITE, "a.org"}
    assert (await page_desk.look("a.org") or {})["pending"] == 1
    assert (await page_desk.look(shapes.SITE) or {})["pending"] == 2
    assert await page_desk.inbox("n1", at_most=10) == ["a.org"]


@pytest.mark.parametrize("kind", ["value", "type"])
async def test_a_damaged_site_holds_up_no_other_and_not_the_page(
    page_desk: frontier.Frontier, raw: Any, cluster: str, kind: str
) -> None:
    record = await begun(page_desk)
    name = keys.RedisKeys(cluster).site("bad.org")
    await (raw.hset(name, "pending", "many") if kind == "value" else raw.set(name, "no hash"))
    offers = [shapes.offer(1, "bad.org"), shapes.offer(2, "bad.org"), shapes.offer(1, "a.org"), shapes.offer(1)]
    answer = await committed(page_desk, record, offers)
    assert answer.verdicts == ("damaged", "damaged", "accepted", "accepted")
    assert shapes.heads(answer.record) == [shapes.url(1)]


async def test_a_page_whose_own_site_is_damaged_is_not_committed_and_its_links_are_kept(
    page_desk: frontier.Frontier, raw: Any, cluster: str
) -> None:
    record = await begun(page_desk)
    await raw.hset(keys.RedisKeys(cluster).site(shapes.SITE), "delay_ms", "long")
    with pytest.raises(errors.DamagedSite):
        await committed(page_desk, record, [shapes.offer(1, "a.org")])
    assert (await page_desk.look("a.org") or {})["pending"] == 1


async def test_an_index_that_is_not_ours_stops_the_commit(desk: frontier.Frontier, raw: Any, cluster: str) -> None:
    """P2: a queue in no index would be lost, so nothing is applied."""
    record = await begun(desk)
    there = shapes.offer(1, "a.org")
    await raw.set(keys.RedisKeys(cluster).index(there.score >> 40), "no zset")
    with pytest.raises(errors.StoreUnavailable, match="not crawlring's"):
        await committed(desk, record, [there])
    assert await desk.look("a.org") is None
    assert (await desk.look(shapes.SITE) or {})["pending"] == 1


async def test_more_links_than_one_call_takes_are_all_taken(page_desk: frontier.Frontier) -> None:
    record = await begun(page_desk)
    offers = [shapes.offer(number, f"s{number % 7}.org") for number in range(2 * frontier.OFFERS_PER_CALL + 3)]
    answer = await committed(page_desk, record, offers)
    assert answer.verdicts == ("accepted",) * len(offers)


async def test_a_page_is_one_call_and_known_links_write_nothing(desk: frontier.Frontier, raw: Any) -> None:
    record = await begun(desk)
    offers = [shapes.offer(number, f"s{number % 16}.org") for number in range(40)]
    await raw.config_resetstat()
    answer = await committed(desk, record, offers)
    assert set(answer.verdicts) == {"accepted"}
    assert await calls(raw) == {
        # Of a new site: its counters, a member a URL (three of a bucket at once), its queue, its counters again, the index. A hint for all.
        "evalsha": 1, "time": 1, "exists": 1, "hsetnx": 1, "zadd": 16, "hmget": 16, "sadd": 24, "hset": 17,
        "smismember": 8, "rpush": 17, "expire": 1, "hgetall": 1, "lrem": 1, "zcard": 3,
    }  # fmt: skip
    await raw.config_resetstat()
    assert set((await committed(desk, answer.record, offers, n=2)).verdicts) == {"known"}
    assert await calls(raw) == {
        "evalsha": 1, "time": 1, "exists": 1, "hsetnx": 1, "hmget": 16, "sadd": 16, "hset": 1, "hgetall": 1, "zcard": 3,
        "smismember": 8,
    }  # fmt: skip


async def calls(raw: Any) -> dict[str, int]:
    told = await raw.info("commandstats")
    counts = {name.removeprefix("cmdstat_"): one["calls"] for name, one in told.items()}
    return {name: count for name, count in counts.items() if not name.startswith(("config", "info", "client"))}


async def test_calls_that_meet_share_a_trip(desk: frontier.Frontier, raw: Any) -> None:
    """And one that gives up takes no other with it."""
    await desk.ping()
    asked = [asyncio.ensure_future(desk.site_count()) for _ in range(20)]
    given_up = asyncio.ensure_future(desk.site_count())
    await asyncio.sleep(0)
    given_up.cancel()
    assert await asyncio.gather(*asked) == [0] * 20
    before = (await raw.info("stats"))["total_reads_processed"]
    await asyncio.gather(*(desk.content(DIGEST) for _ in range(200)))
    assert (await raw.info("stats"))["total_reads_processed"] - before <= 4


@hypothesis.given(
    st.sampled_from(["https://www.a.org", "http://a.org", "https://a.org:8443", "http://x.y.a.org:81", "https://b.org", "https://ba.org"]),
    st.text("abc/?=&.:~%-", max_size=30),
    st.sampled_from(["", "3", "s2.1"]),
)  # fmt: skip
def test_a_url_is_packed_as_its_short_form(origin: str, path: str, meta: str) -> None:
    url = f"{origin}/{path}"
    assert packing._code(url, "a.org", meta) == urls.compact(url, "a.org") + (f" {meta}" if meta else "")
