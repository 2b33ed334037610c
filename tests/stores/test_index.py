"""The site index gives the sites of an arc, all of them, a bounded page at a time; reports speak for live nodes."""

import hypothesis
import pytest
import redis.asyncio
from hypothesis import strategies as st

from shared import board, frontier, keys, records, ring
from tests.stores import shapes


async def read(desk: frontier.Frontier, *ranges: tuple[int, int, int]) -> list[str]:
    pages = [page async for page in desk.sites_in(ranges)]
    assert all(0 < len(page) <= 1_000 for page in pages)
    return [site for page in pages for site in page]


def at(site: str, score: int) -> records.Offer:
    return records.Offer(url=f"https://{site}/", site=site, score=score)


async def test_a_range_includes_both_its_ends_and_nothing_else(desk: frontier.Frontier) -> None:
    base = 3 << 40
    await shapes.offered(desk, *(at(f"s{number}.org", base + number) for number in range(10)))
    assert await read(desk, (3, base + 2, base + 4)) == ["s2.org", "s3.org", "s4.org"]
    assert await read(desk, (3, base + 9, base + 99), (3, base, base)) == ["s9.org", "s0.org"]
    assert await read(desk, (4, 0, 2**48 - 1)) == []
    assert await read(desk) == []


async def test_scores_of_48_bits_are_kept_exactly(desk: frontier.Frontier) -> None:
    top = 2**48 - 1
    await shapes.offered(desk, at("a.org", top), at("b.org", top - 1))
    assert await read(desk, (255, top, top)) == ["a.org"]


async def test_more_sites_than_a_page_come_in_pages_even_where_scores_are_equal(
    desk: frontier.Frontier, store: str, cluster: str
) -> None:
    names = keys.RedisKeys(cluster)
    spread = {f"s{number}.org": (1 << 40) + number for number in range(2_500)}
    equal = {f"e{number}.org": 7 << 40 for number in range(3_000)}
    mixed = {f"m{number}.org": (9 << 40) + number // 700 for number in range(2_100)}
    async with redis.asyncio.Redis.from_url(store, protocol=2) as raw:
        for shard, sites in ((1, spread), (7, equal), (9, mixed)):
            await raw.zadd(names.index(shard), sites)
    for shard, sites in ((1, spread), (7, equal), (9, mixed)):
        found = await read(desk, (shard, 0, 2**48 - 1))
        assert len(found) == len(sites)
        assert set(found) == set(sites)
    assert await desk.site_count() == 7_600


async def test_what_the_index_has_lost_is_entered_again(desk: frontier.Frontier, store: str) -> None:
    await shapes.offered(desk, at("a.org", 5 << 40), at("b.org", 6 << 40))
    async with redis.asyncio.Redis.from_url(store, protocol=2) as raw:
        await raw.delete(desk._keys.index(5))
    assert await read(desk, (5, 0, 2**48 - 1)) == []
    await desk.enter({"a.org": 5 << 40, "b.org": 6 << 40})
    assert await read(desk, (5, 0, 2**48 - 1), (6, 0, 2**48 - 1)) == ["a.org", "b.org"]
    assert await desk.site_count() == 2


@hypothesis.settings(max_examples=10, deadline=None)
@hypothesis.given(st.sets(st.integers(0, 5_000), min_size=1, max_size=60), st.data())
def test_a_move_reads_every_site_that_moved(numbers: set[int], data: st.DataObject) -> None:
    """Scores as the offers carry them lie inside the ranges that the ring asks for."""
    old = ring.Ring.build({"a": 1.0, "b": 1.0}, algorithm="xxh3-64", vnodes=16)
    new = old.with_weights({"a": 1.0, "b": 1.0, "c": data.draw(st.sampled_from([0.5, 1.0, 2.0]))})
    ranges = ring.index_ranges(new, ring.moved_arcs(old, new))
    for number in numbers:
        site = f"s{number}.org"
        score = ring.score("xxh3-64", ring.position("xxh3-64", site))
        if old.owner(site) != new.owner(site):
            assert any(shard == score >> 40 and low <= score <= high for shard, low, high in ranges)


async def test_a_report_speaks_for_a_minute_and_then_no_more(desk: frontier.Frontier, store: str) -> None:
    report = records.NodeReport(
        id="n1", incarnation=7, epoch=2**41 + 3, weight=1.5, address="127.0.0.1:1", time_ms=5, state="member", pages=9
    )
    await desk.report(report)
    assert await desk.reports(["n2", "n1"]) == {"n1": report}
    assert await desk.reports([]) == {}
    async with redis.asyncio.Redis.from_url(store, protocol=2) as raw:
        assert 0 < await raw.ttl(desk._keys.report("n1")) <= 60


async def test_the_time_is_the_stores_own(desk: frontier.Frontier, store: str) -> None:
    async with redis.asyncio.Redis.from_url(store, protocol=2) as raw:
        seconds, microseconds = await raw.time()
    assert abs(await desk.ping() - (seconds * 1000 + microseconds // 1000)) < 5_000


async def test_an_inbox_is_bounded_and_goes_when_nobody_reads_it(
    desk: frontier.Frontier, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "INBOX_MAX", 3)
    await desk.wake("gone", ["a.org", "b.org", "c.org", "d.org"])
    async with redis.asyncio.Redis.from_url(store, protocol=2) as raw:
        assert 0 < await raw.ttl(desk._keys.inbox("gone")) <= board.INBOX_S
    assert await desk.inbox("gone", at_most=10) == ["b.org", "c.org", "d.org"]
