"""The demo's table shows what moved with each site, and its verdicts fail when anything is not as promised."""

from dataclasses import replace

import pytest

from coordinator import demo_report, origin_log
from coordinator.small_web import Kind, Page, Robots, Site, Web
from shared import records

WEB = Web(
    (
        Site(
            "a.test",
            ("a.test",),
            Robots.RULES,
            (
                Page("http://a.test/", Kind.PAGE),
                Page("http://a.test/private/1", Kind.PRIVATE),
                Page("http://a.test/broken/1", Kind.BROKEN),
            ),
            seeded=True,
        ),
    )
)


def handoff(site: str = "a.test", kind: str = "moved", **fields) -> records.Handoff:
    given = {"epoch": 9, "node": "n2", "from_node": "n1", "to": "n2", "time_ms": 10_000, "pending": 4, "validators": 2}
    return records.Handoff(**{**given, "site": site, "kind": kind, **fields})


ENTRIES = [
    handoff("early.test", time_ms=4_000),
    handoff("a.test", change_rate=3.25, pending=1_200),
    handoff("b.test", pending=7),
    handoff("other.test", from_node="n3"),
    handoff("kept.test", to="n1"),
    handoff("a.test", "first_fetch", first_fetch_ms=10_600, gap_ms=1_100),
    handoff("b.test", "first_fetch", epoch=3, first_fetch_ms=1, gap_ms=1),
]


def test_moves_are_those_of_one_node_since_the_kill_with_their_own_first_fetch():
    moves = demo_report.moves_from("n1", ENTRIES, since_ms=9_000)
    assert [(move.moved.site, move.waited_s, move.gap_s) for move in moves] == [
        ("a.test", 0.6, 1.1),
        ("b.test", None, None),
    ]


def test_moves_of_another_cause_are_left_out_where_one_is_asked_for():
    entries = [handoff("a.test", cause="lease_lost"), handoff("b.test", cause="drained")]
    moves = demo_report.moves_from("n1", entries, since_ms=9_000, cause="lease_lost")
    assert [move.moved.site for move in moves] == ["a.test"]


def test_the_table_lines_up_and_shows_a_dash_for_what_is_not_known():
    moves = demo_report.moves_from("n1", ENTRIES, since_ms=9_000)
    assert demo_report.table(moves) == [
        "site    from  to  pending  validators  changes/day  waited s  gap s",
        "a.test  n1    n2    1,200           2         3.25      0.60   1.10",
        "b.test  n1    n2        7           2            -         -      -",
    ]
    assert demo_report.table(moves, rows=1)[-1] == "and 1 more"


def test_the_takeover_is_timed_from_the_kill():
    moves = demo_report.moves_from("n1", ENTRIES, since_ms=9_000)
    assert (
        demo_report.takeover(moves, killed_ms=9_000)
        == "2 sites claimed 1.0 to 1.0 s after the kill; 1 asked again since, the first after 1.6 s"
    )
    assert demo_report.takeover([], killed_ms=0) == "no site has moved"


def test_an_epoch_is_told_with_what_moved():
    line = handoff(kind="epoch", before=("n1", "n2"), after=("n2",), moved_fraction=0.51, ideal_fraction=0.5)
    assert demo_report.summary(line) == "epoch 9: [n1 n2] -> [n2], 51.0% of the ring moved (ideal 50.0%)"


@pytest.mark.parametrize(
    ("aside", "wrong"),
    [
        ({"robots": 1, "status_500": 1}, []),
        ({"robots": 1}, ["a.test"]),
        ({"status_500": 1}, ["a.test"]),
        ({"robots": 2, "status_500": 1}, ["a.test"]),
        ({}, ["a.test"]),
    ],
)
def test_a_page_not_fetched_must_be_refused_for_the_right_reason(aside: dict[str, int], wrong: list[str]):
    assert demo_report.refused_as_recorded(WEB, {"a.test": aside}) == wrong


def request(url: str, boot_s: float, status: int) -> bytes:
    return records.encode_json(
        origin_log.Line(boot_s=boot_s, late_ms=0, wall_ms=0, site="a.test", url=url, status=status, conditional=False)
    )


def good() -> tuple[origin_log.Ledger, list[demo_report.Move]]:
    ledger = origin_log.Ledger(WEB, minimum_s=0.5)
    for i, (url, status) in enumerate([("/robots.txt", 200), ("/", 200), ("/broken/1", 500), ("/", 304)]):
        ledger.add(request(f"http://a.test{url}", float(i), status))
    return ledger, demo_report.moves_from("n1", ENTRIES, since_ms=9_000)


def failing(ledger: origin_log.Ledger, moves: list[demo_report.Move], **changes) -> list[str]:
    told = demo_report.verdicts(ledger, moves, **{"unaccounted": [], "sites_min": 2, **changes})
    return [str(verdict).partition("  ")[2].partition(":")[0] for verdict in told if not verdict.holds]


def test_all_verdicts_hold_when_all_is_well():
    assert failing(*good()) == []


def test_each_verdict_can_fail():
    ledger, moves = good()
    assert failing(ledger, moves, unaccounted=["a.test"]) == ["every other refused for a recorded reason"]
    assert failing(ledger, moves, sites_min=3) == ["sites taken over"]
    ledger.add(request("http://a.test/private/1", 3.2, 200))
    assert failing(ledger, moves) == ["nothing forbidden or unlinked asked for", "smallest gap at the origins"]
    bare = [replace(move, moved=handoff(validators=0)) for move in moves]
    assert failing(good()[0], bare) == ["validators moved with 0 sites", "change rates moved with 0 sites"]
    nothing = origin_log.Ledger(WEB, minimum_s=0.5)
    assert failing(nothing, moves) == ["every page asked for", "smallest gap at the origins", "recrawl"]
