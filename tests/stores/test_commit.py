"""A claim begins a tenure and a commit applies one visit, once; an earlier tenure can only make the site wait."""

import msgspec
import pytest

from shared import errors, frontier, records
from tests.stores import shapes

PAGE = records.PageRecord(etag='"a"', content=2**63 - 1, checks=2, changes=1, observed_s=86_400.5, status=200)


async def site_of(desk: frontier.Frontier, urls: int = 3) -> records.SiteRecord:
    """A site of some URLs, claimed by n1 at epoch 1."""
    await shapes.offered(desk, *(shapes.offer(number) for number in range(urls)))
    return await shapes.claimed(desk)


# Claim.


async def test_a_site_that_nobody_has_owned_comes_with_a_full_delay_ahead(desk: frontier.Frontier) -> None:
    record = await shapes.claimed(desk, "n1", 7, delay_s=2.5)
    assert (record.owner, record.owner_epoch, record.n, record.last_fetch_ms) == (None, 0, 0, None)
    assert (record.delay_s, record.delay_term, record.due_term) == (2.5, "minimum", "claim")
    assert record.due_in_s == 2.5
    assert record.due_ms == record.answered_ms + 2_500


async def test_a_claim_repeated_changes_nothing_and_names_the_same_owner_before(desk: frontier.Frontier) -> None:
    await shapes.claimed(desk, "n1", 1)
    first = await shapes.claimed(desk, "n2", 2)
    assert (first.owner, first.owner_epoch) == ("n1", 1)
    again = await shapes.claimed(desk, "n2", 2, delay_s=99.0)
    assert (again.owner, again.owner_epoch, again.due_ms, again.delay_s) == ("n1", 1, first.due_ms, first.delay_s)


async def test_an_older_epoch_is_stale_and_so_is_another_node_of_the_same(desk: frontier.Frontier) -> None:
    await shapes.claimed(desk, "n1", 2**40 + 5)
    assert await desk.claim([shapes.SITE], "n2", 2**40 + 4, delay_s=2.0) == [None]
    assert await desk.claim([shapes.SITE], "n2", 2**40 + 5, delay_s=2.0) == [None]
    look = await desk.look(shapes.SITE)
    assert look is not None
    assert (look["owner"], look["tenure"]) == ("n1", 2**40 + 5)


async def test_a_batch_of_claims_answers_in_order(desk: frontier.Frontier) -> None:
    sites = [f"s{number}.org" for number in range(600)]
    await shapes.claimed(desk, "n9", 9, "s300.org")
    answers = await desk.claim(sites, "n1", 5, delay_s=1.0)
    assert [answer.site for answer in answers if answer] == [site for site in sites if site != "s300.org"]
    assert answers[300] is None


async def test_a_takeover_finds_all_that_the_last_owner_committed(desk: frontier.Frontier) -> None:
    record = await site_of(desk)
    first = record.head[0]
    await desk.commit(
        shapes.SITE,
        "n1",
        1,
        1,
        shapes.done(
            first,
            later=((first.url, 500.0, 6),),
            pages=((first.url, PAGE),),
            robots=(("https://www.example.com", records.RobotsRecord(verdict="rules", body=b"\xff\x00", status=200)),),
            due_in_s=900.0,
            due_term="retry_after",
            delay_s=12.0,
            delay_term="crawl_delay",
            backoff=3,
            fetched_ms_ago=250,
        ),
    )
    taken = await shapes.claimed(desk, "n2", 2)
    assert (taken.owner, taken.owner_epoch, taken.n) == ("n1", 1, 0)
    assert (taken.pending, taken.later, taken.seen, taken.pages, taken.backoff) == (2, 1, 3, 1, 3)
    assert 499 < (taken.later_in_s or 0) <= 500
    assert (taken.delay_s, taken.delay_term, taken.due_term) == (12.0, "crawl_delay", "retry_after")
    assert 899 < taken.due_in_s <= 900
    assert taken.last_fetch_ms is not None
    assert 250 <= taken.answered_ms - taken.last_fetch_ms < 5_000
    assert (taken.validators, taken.checks, taken.changes, taken.observed_s) == (1, 2, 1, 86_400.5)
    robots = await desk.robots(shapes.SITE, "https://www.example.com")
    assert robots is not None
    assert robots.body == b"\xff\x00"
    assert await desk.robots(shapes.SITE, "http://www.example.com") is None


async def test_a_claim_waits_the_delay_of_the_record_when_that_is_longer(desk: frontier.Frontier) -> None:
    record = await site_of(desk)
    slow = shapes.done(record.head[0], due_in_s=0.0, delay_s=30.0, delay_term="crawl_delay")
    await desk.commit(shapes.SITE, "n1", 1, 1, slow)
    taken = await shapes.claimed(desk, "n2", 2, delay_s=2.0)
    assert (taken.due_in_s, taken.due_term, taken.delay_s) == (30.0, "claim", 30.0)


# Commit.


async def test_a_commit_takes_off_by_value_what_was_done_wherever_it_stands(desk: frontier.Frontier) -> None:
    record = await site_of(desk, 10)
    assert len(record.head) == 8
    committed = await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(record.head[4], record.head[1]))
    assert committed.record.pending == 8
    assert shapes.heads(committed.record) == [shapes.url(number) for number in (0, 2, 3, 5, 6, 7, 8, 9)]
    assert not committed.repeated
    assert not committed.forgotten


async def test_the_same_n_again_answers_the_same_and_changes_nothing(desk: frontier.Frontier) -> None:
    record = await site_of(desk)
    change = shapes.done(
        record.head[0], pages=((record.head[0].url, PAGE),), fetched_ms_ago=0, set_aside=((record.head[0].url, "dns"),)
    )
    first = await desk.commit(shapes.SITE, "n1", 1, 1, change)
    again = await desk.commit(shapes.SITE, "n1", 1, 1, change)
    assert again.repeated
    for name in ("pending", "head", "pages", "checks", "due_ms", "last_fetch_ms", "n"):
        assert getattr(again.record, name) == getattr(first.record, name), name
    look = await desk.look(shapes.SITE)
    assert look is not None
    assert look["set_aside"] == {"dns": 1}


async def test_a_fenced_commit_changes_nothing_but_a_longer_due_and_delay(desk: frontier.Frontier) -> None:
    record = await site_of(desk)
    taken = await shapes.claimed(desk, "n2", 2)
    late = shapes.done(
        record.head[0],
        pages=((record.head[0].url, PAGE),),
        due_in_s=60.0,
        due_term="retry_after",
        delay_s=9.0,
        backoff=4,
    )
    with pytest.raises(errors.StaleEpoch):
        await desk.commit(shapes.SITE, "n1", 1, 1, late)
    after = await shapes.claimed(desk, "n2", 2)
    assert (after.head, after.pending, after.pages, after.backoff, after.n) == (taken.head, 3, 0, 0, 0)
    assert 59 < after.due_in_s <= 60
    assert (after.due_term, after.delay_s) == ("retry_after", 9.0)
    shorter = shapes.done(record.head[0], due_in_s=1.0, delay_s=0.5)
    with pytest.raises(errors.StaleEpoch):
        await desk.commit(shapes.SITE, "n1", 1, 2, shorter)
    assert (await shapes.claimed(desk, "n2", 2)).due_ms == after.due_ms


async def test_another_node_cannot_commit_under_the_owners_tenure(desk: frontier.Frontier) -> None:
    record = await site_of(desk)
    with pytest.raises(errors.StaleEpoch):
        await desk.commit(shapes.SITE, "n2", 1, 1, shapes.done(record.head[0]))
    assert (await shapes.claimed(desk)).head == record.head


async def test_a_delay_carried_over_stands_until_the_owner_has_read_robots_itself(desk: frontier.Frontier) -> None:
    record = await site_of(desk)
    await shapes.claimed(desk, "n2", 2)
    with pytest.raises(errors.StaleEpoch):
        await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(delay_s=9.0, delay_term="crawl_delay"))
    kept = await desk.commit(shapes.SITE, "n2", 2, 1, shapes.done(record.head[0], fetched_ms_ago=0))
    assert (kept.record.delay_s, kept.record.delay_term) == (9.0, "crawl_delay")
    assert kept.record.due_in_s == 9.0, "and it is owed, although the owner asked for less"
    read = shapes.done(robots=(("https://example.com", records.RobotsRecord(verdict="allow")),))
    own = await desk.commit(shapes.SITE, "n2", 2, 2, read)
    assert (own.record.delay_s, own.record.delay_term) == (2.0, "minimum")


async def test_one_long_fetch_of_an_earlier_tenure_counts_once(desk: frontier.Frontier) -> None:
    record = await site_of(desk)
    await shapes.claimed(desk, "n2", 2)
    slow = shapes.done(due_in_s=9.0, due_term="duration", delay_s=9.0, delay_term="duration")
    with pytest.raises(errors.StaleEpoch):
        await desk.commit(shapes.SITE, "n1", 1, 1, slow)
    first = await desk.commit(shapes.SITE, "n2", 2, 1, shapes.done(record.head[0]))
    assert 8 < first.record.due_in_s <= 9
    assert (first.record.delay_s, first.record.delay_term) == (2.0, "minimum")


async def test_an_owner_may_lower_its_delay_but_no_due_ever_moves_back(desk: frontier.Frontier) -> None:
    record = await site_of(desk)
    long = shapes.done(record.head[0], due_in_s=50.0, due_term="backoff", delay_s=50.0, delay_term="backoff")
    first = await desk.commit(shapes.SITE, "n1", 1, 1, long)
    second = await desk.commit(shapes.SITE, "n1", 1, 2, shapes.done(record.head[1], due_in_s=1.0))
    assert (second.record.delay_s, second.record.delay_term) == (2.0, "minimum")
    assert (second.record.due_ms, second.record.due_term) == (first.record.due_ms, "backoff")


@pytest.mark.parametrize("n", [2, 40])
async def test_a_store_that_lost_commits_takes_this_one_and_keeps_the_longer_due(
    desk: frontier.Frontier, n: int
) -> None:
    record = await site_of(desk)
    slow = shapes.done(due_in_s=70.0, due_term="retry_after", delay_s=7.0, delay_term="crawl_delay")
    await desk.commit(shapes.SITE, "n1", 1, 1, slow)
    committed = await desk.commit(shapes.SITE, "n1", 1, n + 1, shapes.done(record.head[0]))
    assert committed.forgotten
    assert (committed.record.pending, committed.record.n) == (2, n + 1)
    assert committed.record.due_in_s > 69
    assert (committed.record.delay_s, committed.record.delay_term) == (7.0, "crawl_delay")
    assert (await desk.commit(shapes.SITE, "n1", 1, n + 1, shapes.done(record.head[1]))).repeated


async def test_a_store_that_lost_the_claim_learns_the_tenure_again(desk: frontier.Frontier) -> None:
    await site_of(desk)
    committed = await desk.commit(shapes.SITE, "n2", 5, 3, shapes.done())
    assert committed.forgotten
    with pytest.raises(errors.StaleEpoch):
        await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done())
    assert not (await desk.commit(shapes.SITE, "n2", 5, 4, shapes.done())).forgotten


async def test_an_emptied_store_is_filled_by_the_next_commit(desk: frontier.Frontier) -> None:
    committed = await desk.commit(shapes.SITE, "n1", 3, 9, shapes.done(later=((shapes.url(1), 0.0, 5),)))
    assert committed.forgotten
    assert shapes.heads(committed.record) == [shapes.url(1)]


async def test_what_is_due_later_moves_into_its_class_when_its_time_comes(desk: frontier.Frontier) -> None:
    record = await site_of(desk, 2)
    change = shapes.done(*record.head, later=((shapes.url(0), 0.15, 7), (shapes.url(1), 3_600.0, 5)))
    waiting = (await desk.commit(shapes.SITE, "n1", 1, 1, change)).record
    assert (waiting.pending, waiting.later, waiting.head) == (0, 2, ())
    assert 0 < (waiting.later_in_s or 0) <= 0.15

    async def moved() -> bool:
        return (await shapes.claimed(desk)).pending == 1

    await shapes.until(moved)
    record = await shapes.claimed(desk)
    assert [(queued.url, queued.priority) for queued in record.head] == [(shapes.url(0), 7)]
    assert record.later == 1


async def test_many_that_fell_due_together_move_in_bounded_parts(desk: frontier.Frontier) -> None:
    await shapes.claimed(desk)
    later = tuple((shapes.url(number), 0.0, 5) for number in range(250))
    counts = []
    for n in range(1, 5):
        committed = await desk.commit(shapes.SITE, "n1", 1, n, shapes.done(later=later if n == 1 else ()))
        counts.append((committed.record.pending, committed.record.later))
    assert counts == [(100, 150), (200, 50), (250, 0), (250, 0)]


# Pages.


async def test_a_page_record_comes_back_with_its_url(desk: frontier.Frontier) -> None:
    record = await site_of(desk, 1)
    again = shapes.done(record.head[0], pages=((record.head[0].url, PAGE),), later=((record.head[0].url, 0.0, 5),))
    committed = await desk.commit(shapes.SITE, "n1", 1, 1, again)
    assert committed.record.head == (records.QueuedUrl(url=shapes.url(0), priority=5, page=PAGE),)


async def test_the_sums_follow_each_page_by_difference(desk: frontier.Frontier) -> None:
    await site_of(desk, 1)

    async def commit(n: int, number: int, page: records.PageRecord) -> tuple[int, int, int, float]:
        change = shapes.done(pages=((shapes.url(number), page),))
        record = (await desk.commit(shapes.SITE, "n1", 1, n, change)).record
        return record.validators, record.checks, record.changes, record.observed_s

    only_date = records.PageRecord(last_modified="Mon, 01 Jan 2024 00:00:00 GMT", checks=1, observed_s=0.25)
    assert await commit(1, 1, PAGE) == (1, 2, 1, 86_400.5)
    assert await commit(2, 2, only_date) == (2, 3, 1, 86_400.75)
    assert await commit(3, 1, records.PageRecord(checks=3, changes=1, observed_s=86_401.0)) == (1, 4, 1, 86_401.25)
    assert await commit(4, 2, records.PageRecord()) == (0, 3, 1, 86_401.0)


async def test_2_000_pages_are_each_found_again_in_small_buckets(desk: frontier.Frontier, cluster: str) -> None:
    await shapes.claimed(desk)
    pages = tuple((shapes.url(number), records.PageRecord(checks=number)) for number in range(2_000))
    for n in range(20):
        await desk.commit(shapes.SITE, "n1", 1, n + 1, shapes.done(pages=pages[n * 100 : n * 100 + 100]))
    wanted = {}
    for n in range(0, 2_000, 8):
        later = tuple((url, 0.0, 5) for url, _ in pages[n : n + 8])
        head = (await desk.commit(shapes.SITE, "n1", 1, 21 + n, shapes.done(later=later))).record.head
        wanted |= {queued.url: queued.page for queued in head}
        await desk.commit(shapes.SITE, "n1", 1, 22 + n, shapes.done(*head))
    assert wanted == dict(pages)
    (buckets,) = await desk._trip([("HGET", f"cr:{cluster}:{{{shapes.SITE}}}:site", "pages_b")])
    stem = f"cr:{cluster}:{{{shapes.SITE}}}:pages:"
    sizes = await desk._trip([("HLEN", f"{stem}{bucket}") for bucket in range(int(buckets))])
    assert sum(sizes) == 2_000
    assert max(sizes) <= 128


async def test_robots_answers_of_one_site_are_bounded(desk: frontier.Frontier) -> None:
    await shapes.claimed(desk)
    answer = records.RobotsRecord(verdict="allow")
    for n in range(4):
        origins = tuple((f"https://h{n}-{number}.example.com", answer) for number in range(100))
        await desk.commit(shapes.SITE, "n1", 1, n + 1, shapes.done(robots=origins))
        assert await desk.robots(shapes.SITE, f"https://h{n}-99.example.com") == answer
    (kept,) = await desk._trip([("HLEN", desk._keys.robots(shapes.SITE))])
    assert kept == 256
    look = await desk.look(shapes.SITE)
    assert look is not None
    assert len(look["robots"]) == 256, "an owner learns the Crawl-delay of every origin from here"


# Look.


async def test_a_look_tells_all_and_changes_nothing(desk: frontier.Frontier) -> None:
    assert await desk.look(shapes.SITE) is None
    record = await site_of(desk)
    change = shapes.done(
        record.head[0],
        pages=((record.head[0].url, PAGE),),
        later=((record.head[0].url, 0.0, 5), (shapes.url(9), 900.0, 5)),
        robots=(("https://www.example.com", records.RobotsRecord(verdict="rules", status=200, fetched_ms=5)),),
        fetched_ms_ago=0,
    )
    await desk.commit(shapes.SITE, "n1", 1, 1, change)
    look = await desk.look(shapes.SITE)
    assert look is not None
    assert look == await desk.look(shapes.SITE)
    assert {
        "site", "owner", "epoch", "tenure", "pending", "head", "later", "seen", "validators",
        "last_fetch_ms", "due_ms", "due_term", "delay_ms", "backoff", "change_rate", "robots",
    } <= set(look)  # fmt: skip
    assert (look["owner"], look["tenure"], look["pending"], look["later"], look["seen"]) == ("n1", 1, 3, 1, 3)
    assert look["change_rate"] == records.change_rate(2, 1, 86_400.5)
    assert look["robots"]["https://www.example.com"]["verdict"] == "rules"


async def test_a_commit_hands_out_as_many_urls_as_it_asks_for(desk: frontier.Frontier) -> None:
    await shapes.offered(desk, *(shapes.offer(number) for number in range(12)))
    record = await shapes.claimed(desk)
    assert shapes.heads(record) == [shapes.url(number) for number in range(8)]
    for n, (ahead, handed) in enumerate([(2, 2), (1, 1), (0, 1), (8, 8), (99, 8)], 1):
        change = msgspec.structs.replace(shapes.done(), ahead=ahead)
        answer = await desk.commit(shapes.SITE, "n1", 1, n, change)
        assert shapes.heads(answer.record) == [shapes.url(number) for number in range(handed)]
