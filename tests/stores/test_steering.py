"""What the operator says stands in the store: rules of seeds are only ever added, pauses are by name, both have versions."""

import redis.asyncio

from shared import board, frontier, keys, scope

SITE = scope.SeedRule(kind="site", place="e.org")
PAGE = scope.SeedRule(kind="page", place="https://f.org/x")
DEEP = scope.SeedRule(kind="prefix", place="https://e.org/docs/", depth=3)


async def test_rules_come_back_as_they_were_written_and_a_repeat_adds_none(store):
    desk = await frontier.Frontier.open(store, "t")
    try:
        assert (await desk.scope_version(), await desk.scopes()) == (0, {})
        assert await desk.add_scopes([SITE, DEEP]) == 1
        assert await desk.add_scopes([SITE, DEEP]) == 1
        assert await desk.add_scopes([PAGE]) == 2
        batches = await desk.scopes()
        assert sorted(map(str, [rule for rules in batches.values() for rule in rules])) == sorted(
            map(str, [SITE, DEEP, PAGE])
        )
        assert {rule for rules in batches.values() for rule in rules} == {SITE, DEEP, PAGE}
        (known,) = [name for name, rules in batches.items() if rules == (PAGE,)]
        again = await desk.scopes(known=[known])
        assert again[known] is None
        assert set(again.values()) == {None, (SITE, DEEP)}
        assert await desk.scope_version() == 2
    finally:
        await desk.close()


async def test_many_batches_are_read_in_parts(valkey):
    desk = await frontier.Frontier.open(valkey, "t")
    count = 2 * board.SCOPES_PER_TRIP + 1
    try:
        for number in range(count):
            await desk.add_scopes([scope.SeedRule(kind="site", place=f"s{number}.org")])
        places = {rule.place for rules in (await desk.scopes()).values() for rule in rules or ()}
    finally:
        await desk.close()
    assert places == {f"s{number}.org" for number in range(count)}


async def test_a_batch_that_does_not_read_admits_nothing_and_stops_nobody(valkey):
    desk = await frontier.Frontier.open(valkey, "t")
    client = redis.asyncio.from_url(valkey, protocol=2)
    try:
        await desk.add_scopes([SITE])
        await client.hset(keys.RedisKeys("t").scopes(), b"\xff", b"\xff\xff")
        assert await desk.scope_version() == 2
        assert (await desk.scopes())[b"\xff"] == ()
    finally:
        await client.aclose()
        await desk.close()


async def test_pauses_are_by_name_and_each_word_makes_a_version(store):
    desk = await frontier.Frontier.open(store, "t")
    try:
        start = await desk.pauses()
        assert (start.version, start.sites) == (0, frozenset())
        assert await desk.pauses(newer_than=0) is None
        assert await desk.pause(["e.org", "*"]) == 1
        now = await desk.pauses(newer_than=0)
        assert (now.version, now.sites) == (1, {"e.org", "*"})
        assert await desk.pause(["e.org"]) == 2
        assert await desk.resume(["*"]) == 3
        now = await desk.pauses(newer_than=2)
        assert (now.version, now.sites) == (3, {"e.org"})
        assert await desk.pauses(newer_than=3) is None
        assert await desk.resume(["e.org", "never.org"]) == 4
        assert (await desk.pauses()).sites == frozenset()
    finally:
        await desk.close()
