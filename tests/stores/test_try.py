"""A URL at which one tenure after another ends without a commit is counted; sites that only move are not."""

import asyncio

import pytest
import redis.asyncio

from shared import errors, frontier, keys, records
from tests.stores import shapes

A, B = shapes.url(0), shapes.url(1)


async def owned(desk: frontier.Frontier, epoch: int, *, delay_s: float = 0.0) -> records.SiteRecord:
    """The next tenure; the one before it has outlived its due, which was none."""
    return await shapes.claimed(desk, f"n{epoch}", epoch, delay_s=delay_s)


async def tried(desk: frontier.Frontier, epoch: int, url: str = A) -> int:
    return await desk.attempt(shapes.SITE, f"n{epoch}", epoch, url)


async def committed(desk: frontier.Frontier, epoch: int) -> records.SiteRecord:
    """A commit that takes nothing off the queue and asks for no delay."""
    return (await desk.commit(shapes.SITE, f"n{epoch}", epoch, 1, records.Commit())).record


async def one_that_died(desk: frontier.Frontier) -> None:
    """n1 has a healthy tenure and n2 none; n3 follows it."""
    await shapes.offered(desk, shapes.offer(0), shapes.offer(1))
    await owned(desk, 1)
    await committed(desk, 1)
    assert not (await owned(desk, 2)).barren
    assert (await owned(desk, 3)).barren


async def test_three_tenures_that_end_at_one_url_are_counted_the_first_by_its_silence(desk: frontier.Frontier) -> None:
    await one_that_died(desk)
    assert await tried(desk, 3) == 1
    assert (await owned(desk, 4)).barren
    assert await tried(desk, 4) == 2
    assert (await owned(desk, 5)).barren
    assert await tried(desk, 5) == 3
    # Who is told and then ends too leaves the count where the next one reads it.
    await owned(desk, 6)
    assert await tried(desk, 6) == 4


async def test_a_repeat_is_counted_once(desk: frontier.Frontier) -> None:
    await one_that_died(desk)
    assert [await tried(desk, 3) for _ in range(3)] == [1, 1, 1]
    await owned(desk, 4)
    assert [await tried(desk, 4) for _ in range(3)] == [2, 2, 2]


async def test_another_url_starts_over(desk: frontier.Frontier) -> None:
    await one_that_died(desk)
    assert await tried(desk, 3) == 1
    await owned(desk, 4)
    # n3 began with A, as its mark says: nothing has ended at B.
    assert [await tried(desk, 4, B), await tried(desk, 4, B)] == [0, 0]
    await owned(desk, 5)
    assert await tried(desk, 5, A) == 0
    # Within one tenure the last one stands.
    assert await tried(desk, 5, B) == 0
    await owned(desk, 6)
    assert await tried(desk, 6, B) == 1


async def test_a_commit_starts_over_and_leaves_nothing_behind(desk: frontier.Frontier, store: str) -> None:
    await one_that_died(desk)
    await tried(desk, 3)
    await committed(desk, 3)
    async with redis.asyncio.Redis.from_url(store, protocol=2, decode_responses=True) as raw:
        fields = await raw.hgetall(keys.RedisKeys(desk.cluster).site(shapes.SITE))
    assert [name for name in fields if str(name).startswith("try")] == []
    assert not (await owned(desk, 4)).barren
    await owned(desk, 5)
    assert await tried(desk, 5) == 1


async def test_a_site_that_moves_while_it_waits_ends_no_tenure(desk: frontier.Frontier) -> None:
    await shapes.offered(desk, shapes.offer(0))
    for epoch in range(1, 9):
        assert not (await owned(desk, epoch, delay_s=60.0)).barren


async def test_tenures_that_outlive_their_due_and_ask_for_nothing_are_not_counted(desk: frontier.Frontier) -> None:
    """A node that is busy elsewhere: only the first of them can be mistaken, and one is not three."""
    await shapes.offered(desk, shapes.offer(0))
    await owned(desk, 1)
    for epoch in range(2, 9):
        assert (await owned(desk, epoch)).barren
    # Each of these but the first would have left a mark.
    assert await tried(desk, 8) == 0
    await owned(desk, 9)
    assert await tried(desk, 9) == 1


async def test_a_claim_repeated_says_the_same_and_a_commit_ends_it(desk: frontier.Frontier) -> None:
    await one_that_died(desk)
    assert (await owned(desk, 3)).barren
    assert (await committed(desk, 3)).n == 1
    assert not (await owned(desk, 4)).barren


async def test_who_does_not_hold_the_site_notes_nothing(desk: frontier.Frontier) -> None:
    await one_that_died(desk)
    for node, tenure in (("n2", 2), ("n9", 3)):
        with pytest.raises(errors.StaleEpoch):
            await desk.attempt(shapes.SITE, node, tenure, B)
    assert await tried(desk, 3) == 1


async def test_a_store_that_forgot_the_claim_lets_the_page_be_fetched(desk: frontier.Frontier) -> None:
    await one_that_died(desk)
    assert await desk.attempt(shapes.SITE, "n7", 7, A) == 0
    assert await tried(desk, 3) == 1


async def test_many_at_once_are_one(desk: frontier.Frontier) -> None:
    await one_that_died(desk)
    assert await asyncio.gather(*(tried(desk, 3) for _ in range(20))) == [1] * 20
