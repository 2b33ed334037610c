"""Recrawl slots, change signals, how a URL was found, what a site's record keeps beside its queues, content digests."""

import hashlib
import time

import pytest

from shared import frontier, records
from tests.stores import shapes


@pytest.fixture
async def desk(store, cluster):
    opened = await frontier.Frontier.open(store, cluster)
    yield opened
    await opened.close()


def page(*, checked_s_ago: float = 1e6, priority: int = 5) -> records.PageRecord:
    return records.PageRecord(last_check_ms=round((time.time() - checked_s_ago) * 1000), priority=priority)


def again(one: records.QueuedUrl, *, gap_s: float) -> records.Commit:
    """A visit whose page is wanted again in a long time."""
    kept = ((one.url, page()),)
    return shapes.done(one, pages=kept, fresh=((one.url, 1e6),), fresh_gap_s=gap_s, delay_s=0.01, due_in_s=0.01)


async def visited(desk: frontier.Frontier, count: int, *, gap_s: float = 0.05, **changes: object) -> records.SiteRecord:
    """A site with so many pages, each visited once and wanted again in that many thousand seconds, its number's order."""
    await shapes.offered(desk, *map(shapes.offer, range(count)))
    record = await shapes.claimed(desk, delay_s=0.01)
    n = 0
    while record.head:
        n += 1
        one = record.head[0]
        number = int(one.url.rpartition("/")[2])
        change = shapes.done(
            one,
            pages=((one.url, changes.get("page") or page()),),
            fresh=((one.url, 1000.0 * (1 + number)),),
            fresh_gap_s=gap_s if record.pending == 1 else 0.0,
            fresh_min_s=changes.get("min_s", 0.0),
            delay_s=0.01,
            due_in_s=0.01,
        )
        record = (await desk.commit(shapes.SITE, "n1", 1, n, change)).record
        if record.pending and record.head[0].page:
            break
    return record


async def slots(desk: frontier.Frontier, *, until: int, within_s: float = 5.0) -> records.SiteRecord:
    """Read the site again until that many URLs wait."""
    record = await shapes.claimed(desk, delay_s=0.01)

    async def waiting() -> bool:
        nonlocal record
        record = await shapes.claimed(desk, delay_s=0.01)
        return record.pending >= until

    await shapes.until(waiting, within_s=within_s)
    return record


async def test_each_slot_takes_the_page_that_is_wanted_first(desk):
    record = await visited(desk, 5, gap_s=0.2)
    assert (record.pending, shapes.heads(record), record.later) == (1, [shapes.url(0)], 4)
    began = time.monotonic()
    order = []
    for _ in range(3):
        record = await slots(desk, until=1)
        order += shapes.heads(record)
        await desk.commit(shapes.SITE, "n1", 1, record.n + 1, again(record.head[0], gap_s=0.2))
    assert order == [shapes.url(0), shapes.url(1), shapes.url(2)]
    assert time.monotonic() - began >= 0.35, "two more slots, 0.2 s apart"


async def test_while_new_urls_wait_recrawls_have_every_second_visit_at_most(desk):
    """However late the visits are: slots that have come meanwhile are not all made up for first."""
    await visited(desk, 6, gap_s=0.001)
    await shapes.offered(desk, *map(shapes.offer, range(10, 20)))
    order = []
    for _ in range(12):
        record = await shapes.claimed(desk, delay_s=0.01)
        one = record.head[0]
        order.append("again" if one.page else "new")
        await desk.commit(shapes.SITE, "n1", 1, record.n + 1, again(one, gap_s=0.001))
    assert order == ["again", "new"] * 6


async def test_a_page_is_left_alone_for_the_least_interval(desk):
    record = await visited(desk, 3, min_s=0.4, page=page(checked_s_ago=0.0), gap_s=0.01)
    assert (record.pending, record.later) == (0, 3)
    assert record.later_in_s == pytest.approx(0.4, abs=0.3)
    record = await slots(desk, until=1)
    assert record.head[0].url == shapes.url(0)


async def test_without_a_budget_nothing_is_visited_again(desk):
    record = await visited(desk, 3, gap_s=0.0)
    assert (record.pending, record.later, record.later_in_s) == (0, 3, None)


async def test_a_page_goes_back_into_the_class_it_came_from(desk):
    record = await visited(desk, 1, page=page(priority=9))
    assert [(one.url, one.priority) for one in record.head] == [(shapes.url(0), 9)]


async def test_what_changed_since_it_was_looked_at_comes_first(desk):
    await visited(desk, 4, gap_s=0.3, page=page(checked_s_ago=100.0))
    now_ms = round(time.time() * 1000)

    def said(number: int, ms: int) -> records.Offer:
        offer = shapes.offer(number)
        return records.Offer(url=offer.url, site=offer.site, score=offer.score, changed_ms=ms)

    answers = await shapes.offered(desk, said(3, now_ms), said(2, now_ms - 200_000), said(0, now_ms), said(9, now_ms))
    assert answers == ["changed", "known", "known", "accepted"]  # 0 waits in the queue already
    record = await shapes.claimed(desk, delay_s=0.01)
    for one in record.head:  # the page that waited, and the new one
        record = (await desk.commit(shapes.SITE, "n1", 1, record.n + 1, again(one, gap_s=0.3))).record
    record = await slots(desk, until=1)
    assert shapes.heads(record) == [shapes.url(3)]
    assert await shapes.offered(desk, said(3, now_ms)) == ["known"], "it is in its queue by now"


async def test_what_changed_and_may_not_be_visited_yet_does_not_keep_the_others_waiting(desk):
    """More of them than one slot looks at."""
    record = await visited(desk, 8, gap_s=0.05, page=page(checked_s_ago=3_000.0), min_s=1_000.0)
    lately = page(checked_s_ago=100.0)
    change = shapes.done(
        record.head[0],
        pages=tuple((shapes.url(number), lately) for number in range(2, 8)),
        fresh=((record.head[0].url, 1e6),),
        fresh_gap_s=0.05,
        fresh_min_s=1_000.0,
        delay_s=0.01,
        due_in_s=0.01,
    )
    await desk.commit(shapes.SITE, "n1", 1, record.n + 1, change)
    now_ms = round(time.time() * 1000)
    said = [
        records.Offer(url=offer.url, site=offer.site, score=offer.score, changed_ms=now_ms)
        for offer in map(shapes.offer, range(2, 8))
    ]
    assert set(await shapes.offered(desk, *said)) == {"changed"}
    record = await slots(desk, until=1)
    assert shapes.heads(record) == [shapes.url(1)]


async def test_how_a_url_was_found_stays_with_it_and_is_no_part_of_its_name(desk):
    offer = shapes.offer(1)
    meta = records.trail("sitemap", 3, 2)
    told = records.Offer(url=offer.url, site=offer.site, score=offer.score, meta=meta)
    assert await shapes.offered(desk, told, offer) == ["accepted", "known"]
    record = await shapes.claimed(desk)
    (one,) = record.head
    assert (one.url, one.role, one.depth, one.hops) == (offer.url, "sitemap", 3, 2)
    later = records.Later(one.url, 0.0, 5, one.meta)
    record = (await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(one, later=(later,)))).record
    assert record.head == (one,)
    kept = records.PageRecord(depth=3, role="sitemap", last_check_ms=1)
    change = shapes.done(one, pages=((one.url, kept),), fresh=((one.url, 0.0),), fresh_gap_s=1.0)
    (again,) = (await desk.commit(shapes.SITE, "n1", 1, 2, change)).record.head
    assert (again.url, again.meta, again.role, again.depth, again.hops) == (offer.url, "", "sitemap", 3, 0)


async def test_price_bytes_and_endless_patterns_are_kept(desk):
    await shapes.offered(desk, *map(shapes.offer, range(3)))
    record = await shapes.claimed(desk)
    change = shapes.done(record.head[0], price=1.25, bytes=700, endless=("aa", "bb"))
    await desk.commit(shapes.SITE, "n1", 1, 1, change)
    record = (await desk.commit(shapes.SITE, "n1", 1, 2, shapes.done(record.head[1], bytes=42))).record
    assert (record.price, record.bytes, record.endless) == (1.25, 742, ("aa", "bb"))
    record = (await desk.commit(shapes.SITE, "n1", 1, 3, shapes.done(endless=()))).record
    assert record.endless == ()


async def test_content_is_known_by_the_first_place_it_was_fetched_from(desk):
    digest = hashlib.sha1(b"x", usedforsecurity=False).digest()
    assert await desk.content(digest) is None
    first = records.ContentRef(url="https://a.example/", fetched_ms=5)
    await desk.remember_content(digest, first)
    await desk.remember_content(digest, records.ContentRef(url="https://b.example/", fetched_ms=9))
    assert await desk.content(digest) == first
