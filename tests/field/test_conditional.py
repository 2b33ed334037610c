"""Field cases of conditional requests: validators go back as they came, and the digest has the last word."""

from typing import Any

import pytest

from shared import records
from tests.field.stage import Scene, archived, case, records_of, reply
from tests.node.crawler import Crawler

BODY = b"<title>t</title>the same text as ever"
RECRAWL = {
    "enabled": True,
    "interval_min_s": 1.0,
    "interval_start_s": 100.0,
    "interval_max_s": 1_000.0,
    "visits_per_page_day": 86_400.0,
}


def unchanged(**headers: str) -> bytes:
    lines = ["HTTP/1.1 304 Not Modified", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def counts(known: list[records.PageRecord]) -> list[tuple[int, int]]:
    return [(record.checks, record.changes) for record in known]


def waits_s(crawl: Crawler, url: str) -> list[float]:
    """In how long each visit wants the next one."""
    found = []
    for change in crawl.commits:
        found += [seconds for at, seconds in change.fresh if at == url]
        found += [one.seconds for one in change.later if one.url == url]
    return found


@case("304-no-etag")
async def test_a_304_without_validators_leaves_those_that_are_known(scene: Scene) -> None:
    etag = '"0x8D7F1D7257C74C5"'
    stamp = "Tue, 23 Jan 2024 18:01:02 GMT"
    scene.put("/p", reply(BODY, etag=etag, last_modified=stamp), unchanged())
    async with scene.crawl(recrawl=RECRAWL) as crawl:
        known = await scene.visits(crawl, "/p", 3)
        waits = waits_s(crawl, scene.url("/p"))
    assert [one.header("if-none-match") for one in scene.stage.asked("/p")] == [None, etag, etag]
    assert [one.header("if-modified-since") for one in scene.stage.asked("/p")] == [None, stamp, stamp]
    assert counts(known) == [(0, 0), (1, 0), (2, 0)]
    assert (known[2].etag, known[2].last_modified) == (etag, stamp)
    assert len(waits) == 3
    assert waits[2] >= waits[1], "the schedule does not shrink"


@case("etag-weak")
async def test_a_weak_etag_goes_back_as_it_came_and_equal_bodies_are_no_change(scene: Scene) -> None:
    etag = 'W/"bafda97d4d349433cc0bd57a34de4e5d"'
    scene.put("/p", reply(BODY, etag=etag))
    async with scene.crawl(archive={"warc": True}) as crawl:
        known = await scene.visits(crawl, "/p", 3)
    assert [one.header("if-none-match") for one in scene.stage.asked("/p")] == [None, etag, etag]
    assert counts(known) == [(0, 0), (1, 0), (2, 0)]
    held = archived(scene.out)
    assert held.count(BODY) == 1, "kept once"
    assert held.count(b"revisit/identical-payload-digest\r\n") == 2


@case("etag-flapping")
async def test_an_etag_that_flaps_is_no_change_and_is_not_believed_for_long(scene: Scene) -> None:
    scene.put("/p", *(reply(BODY, etag=f'"{number % 2}-{number}"') for number in range(1, 11)))
    async with scene.crawl() as crawl:
        known = await scene.visits(crawl, "/p", 10)
    assert [changes for _, changes in counts(known)] == [0] * 10
    assert [checks for checks, _ in counts(known)] == list(range(10))
    conditions = [one.header("if-none-match") for one in scene.stage.asked("/p")]
    assert conditions[0] is None
    assert conditions[-3:] == [None] * 3, "judged useless after some such answers"


@case("lm-future")
async def test_a_last_modified_in_the_future_is_no_time_of_a_change(scene: Scene) -> None:
    future = "Sat, 16 Nov 2041 18:11:00 GMT"
    scene.put("/p", reply(BODY, last_modified=future), unchanged(), reply(BODY + b"!", last_modified=future))
    async with scene.crawl(recrawl=RECRAWL) as crawl:
        known = await scene.visits(crawl, "/p", 3)
        waits = waits_s(crawl, scene.url("/p"))
    assert {one.header("if-modified-since") for one in scene.stage.asked("/p")} <= {None, future}
    assert counts(known) == [(0, 0), (1, 0), (2, 1)]
    assert all(0 <= record.observed_s < 60 for record in known)
    assert len(waits) == 3
    assert all(0 < wait <= RECRAWL["interval_max_s"] for wait in waits)


@case("lm-exact-match")
async def test_if_modified_since_is_the_string_that_came(scene: Scene) -> None:
    stamps = {"/p": "Tue, 23 Jan 2024 18:01:02 GMT", "/odd": "tue, 23-Jan-2024 18:01:02 +0000"}
    for path, stamp in stamps.items():
        scene.put(path, reply(BODY, last_modified=stamp))
    async with scene.crawl() as crawl:
        for path in stamps:
            await scene.visits(crawl, path, 2)
    for path, stamp in stamps.items():
        assert [one.header("if-modified-since") for one in scene.stage.asked(path)] == [None, stamp]


@pytest.mark.parametrize(("second", "changes"), [(BODY, 0), (BODY + b"!", 1)], ids=["same", "other"])
@case("etag-absent")
async def test_without_validators_nothing_is_asked_on_condition_and_the_digest_decides(
    scene: Scene, second: bytes, changes: int
) -> None:
    scene.put("/p", reply(BODY), reply(second))
    async with scene.crawl() as crawl:
        known = await scene.visits(crawl, "/p", 2)
    asked: list[Any] = scene.stage.asked("/p")
    assert [one.header("if-none-match") or one.header("if-modified-since") for one in asked] == [None, None]
    assert counts(known) == [(0, 0), (1, changes)]
    assert records_of(crawl, scene.url("/p")) == known
