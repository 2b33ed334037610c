"""How a node with little memory finds its sites on a real store: rounds through the index, and what was let go (P1, P2)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest
import redis.asyncio

from node import claiming, ownership, schedule
from shared import agreement, clock, config, frontier, metrics, placement, records, ring
from tests.node.test_ownership import adopt, view
from tests.stores import shapes

T = TypeVar("T")
DELAY_S = 0.05
SITES = [f"site{i}.example" for i in range(6)]
ALONE, BOTH = {"a": (1, 1.0)}, {"a": (1, 1.0), "b": (2, 1.0)}


class Node:
    """Node a since epoch 10, all earlier owners past; it visits what a test tells it to."""

    over = False

    def __init__(self, store: frontier.Frontier, held_max: int, view_now: records.View) -> None:
        settings = config.load(environ={}, options={"node.id": "a", "politeness.delay_min_s": DELAY_S})
        nobody: Any = None
        self.store = store
        self.due = schedule.Schedule()
        self.owned = ownership.Ownership("a", silence_s=7.0, delay_min_s=DELAY_S, held_max=held_max, share_visits=2)
        self.claiming = claiming.Claiming(
            settings, self, owned=self.owned, store=store, session=nobody, counts=metrics.Metrics()
        )
        self.owned.adopted(clock.boot_s(), adopt((10, view_now), whole=False))
        self.owned.settled(clock.boot_s(), agreement.Settle(10, {}))

    def apply(self, effects: Iterable[ownership.Effect]) -> None:
        for effect in effects:
            match effect:
                case ownership.Claim():
                    self.claiming.claim(effect.sites)
                case ownership.Ready():
                    self.due.put(effect.site, effect.at_s, priority=effect.priority)
                case ownership.Released():
                    self.due.drop(effect.sites)
                    self.claiming.forget(effect.sites)

    async def answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await ask()

    async def worked(self, timeout_s: float = 0.25) -> None:
        await asyncio.sleep(min(timeout_s, 0.001))

    def wake(self) -> None:
        """It looks by itself."""

    # -- what a test does

    async def find(self, *sites: str) -> None:
        """A hint; its claims are answered."""
        self.apply(self.owned.found(sites))
        await self.claims()

    async def claims(self) -> None:
        """Whatever is claimed has its answer."""

        async def none_waits() -> bool:
            return not self.owned.unclaimed()

        await shapes.until(none_waits)

    async def start(self, site: str) -> ownership.Held:
        """Begin a visit as soon as the site may be asked."""
        while (held := self.owned.start(clock.boot_s(), site)) is None:
            await asyncio.sleep(0.005)
        return held

    async def commit(self, held: ownership.Held, **changes: object) -> None:
        """End it: its first URL was asked for, the site is left alone for `delay_s`."""
        assert held.record is not None
        held.n += 1
        change = shapes.done(
            held.record.head[0], **{"fetched_ms_ago": 0, "delay_s": DELAY_S, "due_in_s": DELAY_S, **changes}
        )
        held.ready_s = max(held.ready_s, clock.boot_s() + change.due_in_s * agreement.SLACK)
        answer = await self.store.commit(held.site, "a", held.tenure, held.n, change)
        assert not answer.forgotten
        self.apply(self.owned.finished(clock.boot_s(), held, answer))


@pytest.fixture
async def desk(valkey: str, cluster: str) -> AsyncIterator[frontier.Frontier]:
    opened = await frontier.Frontier.open(valkey, cluster)
    yield opened
    await opened.close()


@contextlib.asynccontextmanager
async def node(
    desk: frontier.Frontier, *, held_max: int = 1, view_now: records.View | None = None
) -> AsyncIterator[Node]:
    """At work: claims are answered; rounds are begun by the test."""
    made = Node(desk, held_max, view_now or view(ALONE))
    working = asyncio.create_task(made.claiming._claim_forever())
    try:
        yield made
    finally:
        made.over = True
        await working


def score(site: str) -> int:
    return ring.score_of("xxh3-64", site)


async def offered(desk: frontier.Frontier, *sites: str, number: int = 1) -> None:
    """A URL of each, and no hint to anybody."""
    assert set(await shapes.offered(desk, *(shapes.offer(number, site) for site in sites))) == {"accepted"}


async def test_a_site_makes_room_when_its_visit_is_committed_and_not_before(desk: frontier.Frontier) -> None:
    one, other = SITES[:2]
    await offered(desk, one, other)
    async with node(desk) as me:
        await me.find(one)
        held = await me.start(one)
        await me.find(other)
        assert list(me.owned.sites) == [one], "its request is on"
        await me.commit(held)
        await me.find(other)
        assert list(me.owned.sites) == [other]
        look = await desk.look(one)
        assert look is not None
        assert (look["pages"], look["pending"]) == (1, 0)
        # A visit that ends without a commit is asked for again first.
        held = await me.start(other)
        me.apply(me.owned.finished(clock.boot_s(), held, None))
        me.apply(me.owned.found([one]))
        assert list(me.owned.sites) == [other]


async def test_what_was_let_go_is_looked_at_again_by_the_next_round(desk: frontier.Frontier) -> None:
    """No hint tells of its new URL."""
    one, other = SITES[:2]
    await offered(desk, one, other)
    async with node(desk) as me:
        for site in (one, other):
            await me.find(site)
            await me.commit(await me.start(site))
        assert list(me.owned.sites) == [other]
        await offered(desk, one, number=2)
        await me.claiming._go_round()
        await me.claims()
        (held,) = me.owned.sites.values()
        assert (held.site, held.n) == (one, 1)
        assert held.record is not None
        assert shapes.heads(held.record) == [shapes.url(2, one)]
        assert me.owned.holding.unlooked(), "and its like may have something to do too"


async def test_rounds_go_on_until_all_that_have_work_were_held(desk: frontier.Frontier) -> None:
    """Nothing but the rounds tells of them."""
    await offered(desk, *SITES)
    async with node(desk, held_max=2) as me:
        await me.find(*SITES[:3])
        going = asyncio.create_task(me.claiming._go_round_forever())
        asked = []

        async def all_were_held() -> bool:
            for held in list(me.owned.sites.values()):
                if me.owned.start(clock.boot_s(), held.site):
                    asked.append(held.site)
                    await me.commit(held)
                assert len(me.owned.sites) <= 2
            return len(asked) >= len(SITES) and not me.owned.holding.unlooked()

        await shapes.until(all_were_held, within_s=10.0)
        me.over = True
        await going
        assert sorted(asked) == SITES
        assert me.owned.holding.owned() == len(SITES)


async def test_a_site_taken_up_again_has_the_delay_and_the_last_fetch_it_was_let_go_with(
    desk: frontier.Frontier,
) -> None:
    one, other = SITES[:2]
    await offered(desk, one, other)
    await offered(desk, one, number=2)
    async with node(desk) as me:
        await me.find(one)
        held = await me.start(one)
        ended_s = clock.boot_s()
        await me.commit(held, delay_s=7.0, due_in_s=80.0, due_term="retry_after")
        last_ms = held.record.last_fetch_ms if held.record else None
        await me.find(other)
        assert list(me.owned.sites) == [other]
        await me.commit(await me.start(other))
        await me.find(one)
        again = me.owned.sites[one]
        assert again is not held
        assert again.record is not None
        assert (again.record.delay_s, again.record.last_fetch_ms) == (7.0, last_ms)
        assert last_ms is not None
        assert again.ready_s >= ended_s + 80.0
        assert me.owned.start(ended_s + 79.0, one) is None


async def test_a_delay_of_a_site_that_was_let_go_is_kept_though_the_store_forgets_it(
    desk: frontier.Frontier, valkey: str
) -> None:
    """It crashed, and had what was committed last not on its disk yet: so held sites keep it, and so do these (P1)."""
    one, other = SITES[:2]
    await offered(desk, one, other)
    async with node(desk) as me, redis.asyncio.Redis.from_url(valkey, protocol=2) as store:
        await me.find(one)
        key = desk._keys.site(one)
        before = await store.dump(key)
        held = await me.start(one)
        ended_s = clock.boot_s()
        await me.commit(held, delay_s=30.0, due_in_s=30.0, delay_term="crawl_delay")
        await me.find(other)
        assert list(me.owned.sites) == [other]
        await store.restore(key, 0, before, replace=True)
        await me.commit(await me.start(other))
        await me.find(one)
        again = me.owned.sites[one]
        assert again.record is not None
        assert again.record.delay_s == DELAY_S, "the store has forgotten"
        assert again.ready_s >= ended_s + 30.0


async def test_a_site_that_was_let_go_is_found_though_the_store_lost_its_place_in_the_index(
    desk: frontier.Frontier, valkey: str
) -> None:
    """On a Redis Cluster the index stands on another master than the site, and may fail over by itself (P2)."""
    one, other, hinted = SITES[:3]
    await offered(desk, one, other, hinted)
    async with node(desk, held_max=1) as me, redis.asyncio.Redis.from_url(valkey, protocol=2) as store:
        await me.find(one)
        await me.commit(await me.start(one))
        await me.find(other, hinted)
        assert list(me.owned.sites) == [other]
        await offered(desk, one, number=2)
        for site in (one, hinted):
            assert await store.zrem(desk._keys.index(score(site) >> 40), site) == 1
        await me.commit(await me.start(other))
        await me.claiming._go_round()
        assert list(me.owned.sites) == [other], "no round finds what is not in the index"
        # As the agent does when the store has had another life.
        await desk.enter({site: score(site) for site in me.owned.holding.known()})
        going = asyncio.create_task(me.claiming._go_round())
        asked = set()

        async def both_were_held() -> bool:
            for held in list(me.owned.sites.values()):
                if me.owned.start(clock.boot_s(), held.site):
                    asked.add(held.site)
                    await me.commit(held)
            return asked == {one, hinted}

        await shapes.until(both_were_held)
        await going


async def test_a_round_counts_the_sites_that_overrides_place_here(desk: frontier.Frontier) -> None:
    """They stand in another node's arcs, and nobody else counts them: `up --until-idle` would wait for ever."""
    owner_of = placement.Placement.of(view(BOTH), 10).owner
    theirs = [site for site in SITES if owner_of(site) == "b"]
    mine = [site for site in SITES if site not in theirs]
    placed = theirs[0]
    await offered(desk, *SITES)
    overrides = {placed: "a", mine[0]: "a", "unknown.example": "a"}
    async with node(desk, held_max=len(SITES), view_now=view(BOTH, overrides=overrides)) as me:
        me.owned.holding.refused()
        await me.claiming._go_round()
        assert me.owned.holding.counted == len(mine) + 1
        assert placed in me.owned.sites
