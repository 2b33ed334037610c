"""A drill's report: late takeovers, lost URLs and broken promises are told, and nothing else is."""

import pytest

from coordinator import demo_report, drill_report
from shared import audit, config, frontier, records

BEGAN_MS = 1_000_000
MEMBER = config.Membership()


def move(
    site: str,
    *,
    claimed_s: float,
    asked_s: float | None,
    pending: int = 1,
    due_s: float = 1.0,
    to: str = "n2",
    epoch: int = 7,
) -> demo_report.Move:
    """A site of n1 that was claimed and asked so many seconds after the fault."""
    claimed_ms = BEGAN_MS + round(claimed_s * 1000)
    moved = records.Handoff(
        kind="moved",
        time_ms=claimed_ms,
        epoch=epoch,
        node=to,
        site=site,
        cause="lease_lost",
        from_node="n1",
        to=to,
        settled_by="time",
        pending=pending,
        delay_ms=1_000,
        due_ms=claimed_ms + round(due_s * 1000),
    )
    if asked_s is None:
        return demo_report.Move(moved, None)
    asked_ms = BEGAN_MS + round(asked_s * 1000)
    return demo_report.Move(
        moved, records.Handoff(kind="first_fetch", time_ms=0, epoch=epoch, node=to, first_fetch_ms=asked_ms)
    )


def times(*moves: demo_report.Move, now_s: float = 60, idle: tuple[str, ...] = ()) -> drill_report.Times:
    return drill_report.times(
        moves, began_ms=BEGAN_MS, now_ms=BEGAN_MS + round(now_s * 1000), within_s=12.0, idle=frozenset(idle)
    )


@pytest.mark.parametrize(
    ("fault", "member", "seconds"),
    [
        ("kill", MEMBER, 12.0),
        ("freeze", config.Membership(lease_ttl_s=3), 9.25),
        ("partition", config.Membership(lease_ttl_s=3, view_lease_s=0.5), 5.0),
        ("kill-lease", MEMBER, 6.0),
    ],
)
def test_the_bound_is_p5s(fault: drill_report.Fault, member: config.Membership, seconds: float):
    assert drill_report.promised_s(fault, member) == pytest.approx(seconds)
    assert "delay" in drill_report.bound_text(fault, member)


def test_takeover_times_are_those_of_sites_with_something_to_fetch():
    found = times(
        move("a", claimed_s=9, asked_s=10),
        move("b", claimed_s=9, asked_s=12),
        move("c", claimed_s=9, asked_s=11),
        move("idle", claimed_s=9, asked_s=40, pending=0),
    )
    assert (found.judged, found.first_s, found.median_s, found.last_s, found.over) == (3, 10.0, 11.0, 12.0, ())
    assert (found.slowest_s, found.slowest_bound_s) == (12.0, 13.0)


def test_a_late_first_request_is_told_and_a_pause_the_site_asked_for_is_owed():
    assert times(move("a", claimed_s=9, asked_s=13.1)).over == ("a",)
    assert times(move("a", claimed_s=9, asked_s=13.1, due_s=2.5)).over == ()


def test_a_site_that_nobody_asks_is_late_unless_it_has_nothing_left_or_waits_for_long():
    assert times(move("a", claimed_s=9, asked_s=None)).over == ("a",)
    assert times(move("a", claimed_s=9, asked_s=None), now_s=12).over == ()
    assert times(move("a", claimed_s=9, asked_s=None), idle=("a",)).over == ()
    assert times(move("a", claimed_s=9, asked_s=None, due_s=31)).over == ()
    assert times(move("a", claimed_s=9, asked_s=None, pending=0)).over == ()


def test_a_node_with_more_than_it_can_claim_in_a_second_counts_from_the_claim():
    crowd = [move("a", claimed_s=10, asked_s=11.5), move("b", claimed_s=14, asked_s=16.5)]
    assert times(*crowd).over == ()
    assert times(*crowd[:1], move("b", claimed_s=14, asked_s=17.5)).over == ("b",)
    assert times(move("b", claimed_s=14, asked_s=16.5)).over == ("b",), "one site can be claimed in a second"


def test_lost_is_what_the_record_neither_holds_nor_accounts_for():
    known = drill_report.Counts
    assert drill_report.lost({"a": known(5, 5, 2)}, {"a": known(9, 9, 4)}) == {}
    assert drill_report.lost({"a": known(5, 5, 2)}, {"a": known(9, 7, 4)}) == {"a": 2}
    assert drill_report.lost({"a": known(5, 5, 2)}, {"a": known(4, 4, 1)}) == {"a": 1}, "the store forgot one"
    assert drill_report.lost({"a": known(5, 5, 2)}, {}) == {"a": 5}, "and all of a site"
    assert drill_report.lost({"a": known(5, 4, 2)}, {"a": known(9, 8, 2)}) == {}, "it was gone before"
    assert drill_report.lost({}, {"new": known(3, 2, 2)}) == {"new": 1}
    assert drill_report.lost({"a": known(5, 7, 2)}, {"a": known(5, 6, 2)}) == {}, "a retry stands twice"


async def test_every_way_a_url_can_go_is_accounted_for_and_one_that_vanishes_is_not(valkey: str, cluster: str):
    store = await frontier.Frontier.open(valkey, cluster)
    urls = [f"http://a.test/{i}" for i in range(6)]
    await store.offer(
        [records.Offer(url=url, site="a.test", score=1) for url in urls], owner_of=lambda _: None, pages_max=100
    )
    (record,) = await store.claim(["a.test"], "n1", 1, delay_s=1.0)
    assert record is not None
    done = dict(zip(urls, record.head, strict=False))

    async def now() -> drill_report.Counts:
        look = await store.look("a.test")
        assert look is not None
        return drill_report.counts(look)

    first = await now()
    assert first == (6, 6, 6)
    page = records.PageRecord(status=200, last_check_ms=1)
    changes = [
        records.Commit(done=(done[urls[0]],), pages=((urls[0], page),), visits=1),
        records.Commit(done=(done[urls[1]],), set_aside=((urls[1], "robots"),)),
        records.Commit(done=(done[urls[2]],), later=((urls[2], 60.0, 5),)),
        records.Commit(done=(done[urls[3]],), pages=((urls[3], page),), set_aside=((urls[3], "status_500"),), visits=1),
    ]
    for n, change in enumerate(changes, 1):
        await store.commit("a.test", "n1", 1, n, change)
        assert drill_report.lost({"a.test": first}, {"a.test": await now()}) == {}, change
    await store.commit("a.test", "n1", 1, 5, records.Commit(done=(done[urls[4]],)))  # off the queue, and nowhere else
    assert drill_report.lost({"a.test": first}, {"a.test": await now()}) == {"a.test": 1}
    await store.close()


def verdicts(
    found: audit.Findings | None = None,
    *,
    gone: dict[str, int] | None = None,
    over: tuple[str, ...] = (),
    recovered: str = "",
) -> dict[str, bool]:
    told = drill_report.verdicts(
        found, gone=gone or {}, seen=10, takeover=drill_report.Times(over=over), moved=3, recovered=recovered
    )
    return {one.promise: one.holds for one in told}


def violation(promise: audit.Promise) -> audit.Findings:
    one = audit.Violation(promise=promise, site="a", reason="gap_too_short", node="n1", start_ms=1, tenure=1)
    return audit.Findings(requests=1, violations=(one,), violations_total=1)


@pytest.mark.parametrize(
    ("broken", "arguments"),
    [
        (None, {"found": audit.Findings(requests=1)}),
        (None, {}),
        ("P1", {"found": violation("P1")}),
        ("P2", {"gone": {"a": 2}}),
        ("P3", {"found": violation("P3")}),
        ("P4", {"found": violation("P4")}),
        ("P5", {"over": ("a",)}),
        ("recovery", {"recovered": "n1 is not back"}),
    ],
)
def test_each_promise_has_a_verdict_of_its_own(broken: str | None, arguments: dict):
    told = verdicts(**arguments)
    assert list(told) == ["P1", "P2", "P3", "P4", "P5", "recovery"]
    assert [promise for promise, holds in told.items() if not holds] == ([broken] if broken else [])


def test_the_text_tells_the_figures():
    takeover = drill_report.Times(
        judged=2, first_s=9.0, median_s=9.5, last_s=10.0, slowest_s=10.0, slowest_bound_s=12.5
    )
    report = drill_report.Report(
        fault="freeze",
        node="n2",
        stores=(),
        began_ms=BEGAN_MS,
        healed_ms=BEGAN_MS + 13_000,
        sites_owned=24,
        pending_owned=1_800,
        moved=24,
        back=23,
        takeover=takeover,
        bound=drill_report.bound_text("freeze", MEMBER),
        resumed_s=31.0,
        requests=100,
        smallest_gap_ratio=1.004,
        repeats=2,
        lost=0,
        promises=drill_report.verdicts(None, gone={}, seen=1, takeover=takeover, moved=24, recovered=""),
        kept=True,
    )
    text = "\n".join(drill_report.told(report))
    for figure in (
        "freeze of n2, 13.0 s long: n2 owned 24 sites with 1,800 URLs pending",
        "24 sites to other nodes, 23 back since",
        "first 9.0 s, median 9.5 s, last 10.0 s",
        "delay + 12 s; nearest to it 10.0 s of 12.5 s",
        "31.0 s after it was healed",
        "smallest 1.004 of the delay",
        "repeats    2",
        "lost       0",
    ):
        assert figure in text, text
    assert text.count("\nok ") == 6
