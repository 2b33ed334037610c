"""The handoff log says of every move what scripts rely on, and can be read, filtered, followed and kept in a file."""

import asyncio
import json
from pathlib import Path

import pytest

from shared import frontier, handoffs, records
from tests.stores import shapes

CONTRACT = [
    "kind", "time_ms", "epoch", "site", "cause", "from", "to", "settled_by", "pending", "validators",
    "change_rate", "last_fetch_ms", "due_ms", "due_term", "first_fetch_ms", "gap_ms",
]  # fmt: skip


def line(site: str = "a.org", *, epoch: int = 5, source: str | None = "n1", to: str = "n2") -> records.Handoff:
    return records.Handoff(
        kind="moved", time_ms=epoch * 10, epoch=epoch, node=to, site=site, cause="lease_lost", from_node=source, to=to
    )


SUMMARY = records.Handoff(
    kind="epoch", time_ms=50, epoch=5, node="n2", before=("n1", "n2"), after=("n2", "n3"), arcs=9, sites=4
)


async def test_a_move_is_told_from_the_claim_and_again_at_the_first_request(desk: frontier.Frontier) -> None:
    await shapes.offered(desk, *(shapes.offer(number) for number in range(3)))
    record = await shapes.claimed(desk)
    page = records.PageRecord(etag='"a"', checks=2, changes=1, observed_s=86_400.0)
    change = shapes.done(record.head[0], pages=((record.head[0].url, page),), fetched_ms_ago=40)
    await desk.commit(shapes.SITE, "n1", 1, 1, change)
    taken = await shapes.claimed(desk, "n2", 2)
    moved = handoffs.moved(taken, epoch=3, node="n2", cause="drained", settled_by="ack")
    assert json.loads(handoffs.json_line(moved)) == {
        "kind": "moved",
        "time_ms": taken.answered_ms,
        "epoch": 3,
        "site": shapes.SITE,
        "cause": "drained",
        "from": "n1",
        "to": "n2",
        "settled_by": "ack",
        "pending": 2,
        "validators": 1,
        "change_rate": pytest.approx(records.change_rate(2, 1, 86_400.0)),
        "last_fetch_ms": taken.last_fetch_ms,
        "due_ms": taken.due_ms,
        "due_term": taken.due_term,
        "first_fetch_ms": None,
        "gap_ms": None,
    }
    assert taken.last_fetch_ms is not None
    first = handoffs.first_fetch(moved, first_fetch_ms=taken.last_fetch_ms + 2_345)
    filled = json.loads(handoffs.json_line(first))
    same = {"kind", "time_ms", "first_fetch_ms", "gap_ms"}
    assert {name: value for name, value in filled.items() if name not in same} == {
        name: value for name, value in json.loads(handoffs.json_line(moved)).items() if name not in same
    }
    assert (filled["kind"], filled["gap_ms"], filled["first_fetch_ms"]) == (
        "first_fetch", 2_345, taken.last_fetch_ms + 2_345,
    )  # fmt: skip


def test_a_site_never_fetched_has_no_gap() -> None:
    assert handoffs.first_fetch(line(), first_fetch_ms=99).gap_ms is None


def test_lines_carry_the_contract_in_its_order_and_unknown_is_null() -> None:
    told = json.loads(handoffs.json_line(line(source=None)))
    assert list(told) == CONTRACT
    assert told["from"] is None
    summary = json.loads(handoffs.json_line(SUMMARY))
    assert list(summary)[: len(CONTRACT)] == CONTRACT
    assert (summary["before"], summary["after"], summary["arcs"]) == (["n1", "n2"], ["n2", "n3"], 9)


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        ({}, [True, True]),
        ({"site": "a.org"}, [True, False]),
        ({"site": "b.org"}, [False, False]),
        ({"epoch": 5}, [True, True]),
        ({"epoch": 6}, [False, False]),
        ({"node": "n1"}, [True, True]),
        ({"node": "n2", "epoch": 5}, [True, True]),
        ({"node": "n3"}, [False, True]),
        ({"node": "n9"}, [False, False]),
    ],
)
def test_a_filter_passes_what_it_names(wanted: dict[str, object], passes: list[bool]) -> None:
    assert [handoffs.matches(entry, **wanted) for entry in (line(), SUMMARY)] == passes


def test_a_file_of_lines_reads_back_and_bad_lines_are_counted(tmp_path: Path) -> None:
    entries = [line(), line("b.org", source=None), handoffs.first_fetch(line(), first_fetch_ms=7), SUMMARY]
    log = tmp_path / "handoffs.jsonl"
    good = "\n".join(handoffs.json_line(entry) for entry in entries)
    log.write_text(f'{good}\n\nnot json\n[1]\n{{"kind": "moved"}}\n"text"\n{{"kind": "mo')
    bad: list[None] = []
    assert list(handoffs.read_file(log, on_bad=lambda: bad.append(None))) == entries
    assert len(bad) == 5


async def test_the_log_is_read_in_order_past_the_end_of_a_page(desk: frontier.Frontier) -> None:
    written = [line(f"s{number}.org", epoch=number) for number in range(2_300)]
    await desk.append_handoffs(written[:1_500])
    await desk.append_handoffs(written[1_500:])
    await desk.append_handoffs([])
    assert [entry async for entry in handoffs.read(desk)] == written
    assert [entry async for entry in handoffs.read(desk, site="s2100.org")] == [written[2_100]]
    first = await desk.read_handoffs(at_most=2)
    assert [entry for _, entry in first] == written[:2]
    assert [entry for _, entry in await desk.read_handoffs(first[-1][0], at_most=1)] == written[2:3]


async def test_a_follower_gets_what_is_there_and_what_comes(desk: frontier.Frontier) -> None:
    await desk.append_handoffs([line("old.org")])
    follower = handoffs.follow(desk, node="n2")
    async with asyncio.timeout(10):
        assert (await anext(follower)).site == "old.org"
        coming = asyncio.ensure_future(anext(follower))
        await desk.append_handoffs([line("other.org", source="n8", to="n9"), line("new.org")])
        assert (await coming).site == "new.org"
    await follower.aclose()


async def test_waiting_for_news_is_no_outage(desk: frontier.Frontier) -> None:
    """The wait is cut below a call's time, or the client would take the silence for a dead store."""
    assert await desk.read_handoffs(at_most=5, block_ms=60_000) == []
