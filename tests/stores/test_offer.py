"""An offered URL is queued once, in its class, under an index entry, and its owner is woken once."""

import itertools

import hypothesis
import pytest
import redis.asyncio
from hypothesis import strategies as st

from shared import frontier, keys, urls
from tests.stores import shapes

_examples = itertools.count()


async def test_a_url_is_accepted_once_and_known_ever_after(desk: frontier.Frontier) -> None:
    first = shapes.offer(1)
    assert await shapes.offered(desk, first, shapes.offer(2), first) == ["accepted", "accepted", "known"]
    assert await shapes.offered(desk, first) == ["known"]
    record = await shapes.claimed(desk)
    assert shapes.heads(record) == [shapes.url(1), shapes.url(2)]
    assert (record.pending, record.seen) == (2, 2)


async def test_verdicts_stand_in_the_order_of_the_offers_whatever_their_sites(desk: frontier.Frontier) -> None:
    await shapes.offered(desk, shapes.offer(1, "a.org"))
    mixed = [shapes.offer(1, "a.org"), shapes.offer(1, "b.org"), shapes.offer(2, "a.org"), shapes.offer(1, "b.org")]
    assert await shapes.offered(desk, *mixed) == ["known", "accepted", "accepted", "known"]


async def test_no_offer_is_no_work(desk: frontier.Frontier) -> None:
    assert await shapes.offered(desk) == []
    assert await desk.site_count() == 0


async def test_the_most_urgent_class_comes_first_and_each_class_in_its_order(desk: frontier.Frontier) -> None:
    order = [(1, 5), (2, 0), (3, 9), (4, 5), (5, 9), (6, 4)]
    await shapes.offered(desk, *(shapes.offer(number, priority=priority) for number, priority in order))
    record = await shapes.claimed(desk)
    assert [(queued.url, queued.priority) for queued in record.head] == [
        (shapes.url(number), priority) for number, priority in [(3, 9), (5, 9), (1, 5), (4, 5), (6, 4), (2, 0)]
    ]


@pytest.mark.parametrize("priority", [-1, 10])
async def test_a_class_that_does_not_exist_is_refused_before_anything_is_sent(
    desk: frontier.Frontier, priority: int
) -> None:
    with pytest.raises(ValueError, match="not 0 to 9"):
        await shapes.offered(desk, shapes.offer(1, priority=priority))
    assert await desk.look(shapes.SITE) is None


async def test_a_full_site_still_knows_what_it_has(desk: frontier.Frontier) -> None:
    three = [shapes.offer(number) for number in range(3)]
    assert await shapes.offered(desk, *three, pages_max=2) == ["accepted", "accepted", "full"]
    assert await shapes.offered(desk, *three, pages_max=2) == ["known", "known", "full"]
    assert await shapes.offered(desk, *three, pages_max=3) == ["known", "known", "accepted"]


async def test_20_000_urls_of_one_site_stay_known_in_small_buckets(
    desk: frontier.Frontier, store: str, cluster: str
) -> None:
    whole = [shapes.offer(number) for number in range(20_000)]
    verdicts = [
        verdict for at in range(0, 20_000, 4_000) for verdict in await shapes.offered(desk, *whole[at : at + 4_000])
    ]
    assert set(verdicts) == {"accepted"}
    assert set(await shapes.offered(desk, *whole[::7])) == {"known"}
    record = await shapes.claimed(desk)
    assert (record.pending, record.seen) == (20_000, 20_000)

    stem = keys.RedisKeys(cluster).seen(shapes.SITE)
    async with redis.asyncio.Redis.from_url(store, protocol=2) as raw:
        buckets = int(await raw.hget(keys.RedisKeys(cluster).site(shapes.SITE), "seen_b"))
        sizes = [await raw.scard(f"{stem}:{bucket}") for bucket in range(buckets)]
        encodings = {await raw.object("encoding", f"{stem}:{bucket}") for bucket in range(buckets)}
        memory = sum([await raw.memory_usage(key) for key in await raw.keys(f"cr:{cluster}:*")])
    assert sum(sizes) == 20_000
    assert max(sizes) <= 512
    assert min(sizes) > 0
    assert encodings == {b"intset"}
    # The budget is 60 bytes a URL, queued and seen; these URLs are of the usual length.
    assert memory / 20_000 < 60


@hypothesis.settings(
    max_examples=5, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(digests=st.sets(st.integers(0, 2**63 - 1), min_size=1, max_size=900))
async def test_any_digests_land_in_the_bucket_they_are_looked_for(redis7: str, digests: set[int]) -> None:
    """The script splits a decimal digest into two halves: no digest, however small or long, may go astray."""
    site = "digits.org"
    cluster = f"digits{next(_examples)}"
    desk = await frontier.Frontier.open(redis7, cluster)
    script = frontier.SCRIPTS["offer"]
    key = keys.RedisKeys(cluster).site(site)
    flat = [part for one in digests for part in (str(one), one % frontier.packing.HASH_RANGE, 5, f"/{one}")]
    stem = keys.RedisKeys(cluster).stem
    (asked,) = frontier.packing.offer(
        {"max": 10**6, "stem": stem, "sites": [site, 0, 0, len(digests)], "inboxes": [], "urls": flat}
    )
    try:
        answers = [(await desk._trip([("EVALSHA", script.sha, 1, key, asked)]))[0][1] for _ in range(2)]
        assert answers == [b"A" * len(digests), b"K" * len(digests)]
        (fields,) = await desk._trip([("HMGET", key, "seen_b", "seen_n")])
        buckets = int(fields[0] or 1)
        assert int(fields[1]) == len(digests)
        size = 1 << (buckets.bit_length() - 1)
        for bucket in range(buckets):
            (members,) = await desk._trip([("SMEMBERS", f"{keys.RedisKeys(cluster).seen(site)}:{bucket}")])
            for member in members:
                low = int(member) % (2 * size)
                assert bucket == (low if low < buckets else low - size)
    finally:
        await desk.close()


async def test_the_owner_is_hinted_when_its_site_wakes_and_not_again(desk: frontier.Frontier) -> None:
    def owner_of(site: str) -> str | None:
        return "n1" if site == "a.org" else None

    both = [shapes.offer(1, "a.org"), shapes.offer(1, "b.org")]
    await shapes.offered(desk, *both, owner_of=owner_of)
    assert await desk.inbox("n1", at_most=10) == ["a.org"]
    assert await desk.inbox("n1", at_most=10) == ["a.org"], "a hint stays until it has been followed"
    await desk.empty_inbox("n1", 1)
    await shapes.offered(desk, shapes.offer(2, "a.org"), owner_of=owner_of)
    assert await desk.inbox("n1", at_most=10) == []

    record = await shapes.claimed(desk, site="a.org")
    await desk.commit("a.org", "n1", 1, 1, shapes.done(*record.head))
    await shapes.offered(desk, shapes.offer(3, "a.org"), owner_of=owner_of)
    assert await desk.inbox("n1", at_most=10) == ["a.org"]


async def test_an_inbox_gives_its_oldest_hints_until_they_are_taken_out(desk: frontier.Frontier) -> None:
    await desk.wake("n1", ["a.org", "b.org", "a.org", "c.org"])
    await desk.wake("n1", [])
    assert await desk.inbox("n1", at_most=3) == ["a.org", "b.org", "a.org"]
    await desk.empty_inbox("n1", 3)
    assert await desk.inbox("n1", at_most=3) == ["c.org"]
    assert await desk.inbox("n2", at_most=3) == []


async def test_a_seen_url_asked_for_again_is_queued_once_more_but_not_twice(desk: frontier.Frontier) -> None:
    again = shapes.offer(1, again=True)
    assert await shapes.offered(desk, again) == ["accepted"]
    assert await shapes.offered(desk, again) == ["known"], "it is pending already"
    record = await shapes.claimed(desk)
    await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(*record.head))
    assert await shapes.offered(desk, again, owner_of=lambda _site: "n1") == ["accepted"]
    assert await shapes.offered(desk, again) == ["accepted"]
    assert await desk.inbox("n1", at_most=1) == [shapes.SITE]
    assert shapes.heads(await shapes.claimed(desk)) == [shapes.url(1)]


async def test_every_shape_of_url_comes_back_as_it_went_in(desk: frontier.Frontier) -> None:
    shapes_of_urls = [
        "https://example.com/",
        "http://example.com:8080/a?b=c&d=%20e",
        "https://a.b.example.com/x:y/9:z",
        "https://example.com/%E2%98%83",
        "https://example.com/a//b?x=;|'\"",
    ]
    wanted = [urls.canonical(one) for one in shapes_of_urls]
    template = shapes.offer(0)
    offers = [type(template)(url=one, site=template.site, score=template.score) for one in wanted]
    assert set(await shapes.offered(desk, *offers)) == {"accepted"}
    record = await shapes.claimed(desk)
    assert shapes.heads(record) == wanted
    # Through `later` and back, where the class stands before the URL.
    change = shapes.done(*record.head, later=tuple((one, 0.0, 3) for one in wanted))
    committed = await desk.commit(shapes.SITE, "n1", 1, 1, change)
    assert set(shapes.heads(committed.record)) == set(wanted)
    assert {queued.priority for queued in committed.record.head} == {3}
