"""A node acts on what the operator said last, and on nothing when it has not heard for a while."""

import dataclasses
from typing import Any

import pytest
import redis.asyncio

from node import ownership, runner, steering
from shared import config, errors, frontier, keys, metrics, records, scope

SITE = scope.SeedRule(kind="site", place="e.org")
OTHER = scope.SeedRule(kind="site", place="f.org")


@dataclasses.dataclass
class Clock:
    """Boot seconds as the test has them."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def desk(valkey):
    opened = await frontier.Frontier.open(valkey, "t")
    yield opened
    await opened.close()


def settings(**table: object) -> config.Config:
    return config.Config(scope=config.Scope(**table))


def queued(url: str, depth: int = 1, role: records.Role = "page", hops: int = 0) -> records.QueuedUrl:
    return records.QueuedUrl(url=url, priority=5, meta=records.trail(role, depth, hops))


def record(**figures: int) -> records.SiteRecord:
    plain = dict.fromkeys(("owner_epoch", "n", "pending", "later", "due_ms", "backoff", "seen", "validators"), 0)
    plain |= dict.fromkeys(("checks", "changes", "answered_ms", "pages"), 0)
    return records.SiteRecord(
        **(plain | figures),
        site="e.org",
        owner=None,
        later_in_s=None,
        head=(),
        due_in_s=0.0,
        due_term="",
        delay_s=0.0,
        delay_term="",
        last_fetch_ms=None,
        observed_s=0.0,
    )


async def test_nothing_is_known_before_the_first_word_and_nothing_after_too_long_a_silence(desk):
    clock = Clock()
    heard = steering.Steering(settings(), now_s=clock)
    assert not heard.heard
    await heard.read(desk)
    assert heard.heard
    clock.now_s += steering.STALE_S - 0.01
    assert heard.heard
    clock.now_s += 0.01
    assert not heard.heard


async def test_the_age_of_a_word_counts_from_the_question(desk):
    clock = Clock()
    heard = steering.Steering(settings(), now_s=clock)

    class Slow:
        """The store, three seconds of which pass before each answer."""

        async def pauses(self, **asked: object) -> records.Pauses | None:
            clock.now_s += 3
            return await desk.pauses(**asked)

        async def scope_version(self) -> int:
            clock.now_s += 3
            return await desk.scope_version()

        scopes = desk.scopes

    await heard.read(Slow())
    assert not heard.heard


async def test_a_failed_question_leaves_what_was_known(desk):
    heard = steering.Steering(settings(), now_s=Clock())
    await desk.pause(["e.org"])
    assert await heard.read(desk)

    class Away:
        """A store that does not answer."""

        async def pauses(self, **_asked: object) -> records.Pauses | None:
            raise errors.StoreUnavailable("away")

    with pytest.raises(errors.StoreUnavailable):
        await heard.read(Away())
    assert heard.paused("e.org")


async def test_pauses_of_a_site_and_of_all(desk):
    heard = steering.Steering(settings(), now_s=Clock())
    assert not await heard.read(desk)
    await desk.pause(["e.org"])
    assert await heard.read(desk)
    assert (heard.paused("e.org"), heard.paused("f.org"), heard.all_paused) == (True, False, False)
    assert not await heard.read(desk)
    await desk.pause(["*"])
    assert await heard.read(desk)
    assert (heard.paused("f.org"), heard.all_paused) == (True, True)
    await desk.resume(["*"])
    assert await heard.read(desk)
    assert (heard.paused("e.org"), heard.paused("f.org"), heard.all_paused) == (True, False, False)
    assert heard.pauses.version == 3


async def test_rules_that_come_bound_the_crawl_from_then_on(desk):
    heard = steering.Steering(settings(), now_s=Clock())
    await heard.read(desk)
    assert heard.refusal(queued("https://x.org/"), record()) is None
    await desk.add_scopes([SITE])
    await heard.read(desk)
    assert heard.scope_version == 1
    assert heard.scope.verdict("https://e.org/a", "e.org", 1) is None
    assert heard.scope.verdict("https://f.org/a", "f.org", 1) == scope.SEED
    await desk.add_scopes([OTHER])
    await heard.read(desk)
    assert heard.scope_version == 2
    assert heard.scope.verdict("https://f.org/a", "f.org", 1) is None


async def test_a_store_that_lost_its_last_second_is_read_anew_even_where_the_versions_look_the_same(desk, valkey):
    heard = steering.Steering(settings(), now_s=Clock())
    await desk.add_scopes([SITE])
    await desk.pause(["e.org"])
    await heard.read(desk)
    client = redis.asyncio.from_url(valkey, protocol=2)
    try:
        await client.delete(keys.RedisKeys("t").scopes(), keys.RedisKeys("t").paused())
    finally:
        await client.aclose()
    await desk.add_scopes([OTHER])
    await desk.pause(["f.org"])
    assert not await heard.read(desk)  # 1 and 1, as before
    assert heard.paused("e.org")
    heard.forget()
    assert await heard.read(desk)
    assert (heard.paused("e.org"), heard.paused("f.org")) == (False, True)
    assert heard.scope.verdict("https://e.org/a", "e.org", 1) == scope.SEED
    assert heard.scope.verdict("https://f.org/a", "f.org", 1) is None


async def test_a_queued_url_is_judged_with_its_depth_its_hops_and_its_sites_budget(desk):
    await desk.add_scopes([OTHER])
    heard = steering.Steering(
        settings(deny=("~secret",), depth_max=2, pages_per_site=5, bytes_per_site=100), now_s=Clock()
    )
    await heard.read(desk)
    assert heard.refusal(queued("https://e.org/", depth=0), record()) is None  # a seed
    assert heard.refusal(queued("https://e.org/", depth=0, hops=1), record()) == scope.SEED
    assert heard.refusal(queued("https://e.org/secret", depth=0), record()) == scope.DENY
    assert heard.refusal(queued("https://e.org/", depth=3), record()) == scope.DEPTH
    assert heard.refusal(queued("https://e.org/", depth=0), record(pages=5)) == scope.PAGES
    assert heard.refusal(queued("https://e.org/", depth=0), record(bytes=100)) == scope.BYTES


async def test_a_robots_txt_that_another_site_uses_is_no_page_of_the_crawl(desk):
    await desk.add_scopes([OTHER])
    heard = steering.Steering(settings(allow=("f.org",), deny=("g.org",), pages_per_site=1), now_s=Clock())
    await heard.read(desk)
    assert heard.refusal(queued("https://e.org/robots.txt", role="robots", hops=1), record(pages=9)) is None
    assert heard.refusal(queued("https://g.org/robots.txt", role="robots", hops=1), record()) == scope.DENY


def test_a_rule_that_cannot_be_read_is_told_at_the_start():
    with pytest.raises(errors.ConfigError, match=r"scope\.deny"):
        steering.Steering(settings(deny=("~(",)))


async def test_a_node_starts_nothing_before_it_has_heard_nor_while_all_is_paused(desk):
    class Session:
        """A member with authority."""

        def authority(self) -> bool:
            return True

    nobody: Any = None
    work = runner.Runner(settings(), store=desk, fetcher=nobody, session=Session, counts=metrics.Metrics())
    clock = Clock()
    work.steering = steering.Steering(settings(), now_s=clock)
    assert not work._may_start()
    await work.steer()
    assert work._may_start()
    await desk.pause(["*"])
    await work.steer()
    assert not work._may_start()
    await desk.resume(["*"])
    await work.steer()
    assert work._may_start()
    clock.now_s += steering.STALE_S
    assert not work._may_start()


async def test_a_paused_site_is_put_by_once_and_comes_back_with_the_resume(desk):
    nobody: Any = None
    work = runner.Runner(settings(), store=desk, fetcher=nobody, session=nobody, counts=metrics.Metrics())
    work.owned.sites["e.org"] = ownership.Held("e.org", ownership.Phase.RESTING, record=record(), ready_s=0.0)
    await desk.pause(["e.org"])
    await work.steer()
    work.due.put("e.org", 0.0, priority=5)
    assert work.due.take(1.0) == "e.org"
    work._start("e.org", 1.0)
    assert len(work.due) == 0  # a paused site is not looked at again and again
    await desk.resume(["e.org"])
    await work.steer()
    assert len(work.due) == 1
    assert work.due.take(2e9) == "e.org"
    await desk.pause(["f.org"])
    await work.steer()
    assert len(work.due) == 0  # it came back once


async def test_a_visit_that_has_begun_starts_no_request_once_its_site_is_paused_or_nothing_is_heard(desk):
    class Session:
        """A member with authority."""

        def authority(self) -> bool:
            return True

        def transferring(self) -> bool:
            return True

    nobody: Any = None
    work = runner.Runner(settings(), store=desk, fetcher=nobody, session=Session, counts=metrics.Metrics())
    clock = Clock()
    work.steering = steering.Steering(settings(), now_s=clock)
    held = ownership.Held("e.org", ownership.Phase.VISITING, record=record(), ready_s=0.0)
    work.owned.sites["e.org"] = held
    permit = work._permit(held)
    await work.steer()
    assert permit.may_start() is None
    for name in ("e.org", "*"):
        await desk.pause([name])
        await work.steer()
        assert permit.may_start() == "paused"
        assert permit.may_send() is None  # what is on its way ends
        await desk.resume([name])
        await work.steer()
        assert permit.may_start() is None
    clock.now_s += steering.STALE_S
    assert permit.may_start() == "paused"
