"""Takeover times: what counts as one, from when, against which bound, and what is over it."""

import pytest

from tests.torture import judge, report, stories, takeovers


@pytest.fixture
def story() -> stories.Story:
    return stories.Story()


def judged(story: stories.Story, *, single: bool = False) -> judge.Verdict:
    return judge.verdict(story.told(), single=single)


def taken(
    story: stories.Story,
    kind: str,
    *,
    asked_s: float,
    claimed_s: float = 6.0,
    lasts_s: float = 0.0,
    view_s: float | None = None,
):
    """One site of n1, from a fault at 0 s."""
    if view_s is not None:
        story.view(view_s, 2)
    story.fault(0, kind, "n1", lasts_s=lasts_s)
    story.moves(claimed_s, story.one.name, "n1", "n2", epoch=2)
    story.asks(asked_s, story.pages[0], "n2", tenure=2)
    (found,) = judged(story, single=True).takeovers
    return found


@pytest.mark.parametrize(
    ("kind", "bound_s"),
    [("crash", 7.75), ("silent", 7.75), ("etcd", 11.75), ("killed_lease", 2.0), ("planned", 2.0)],
)
def test_the_bound_is_that_of_the_kind(kind, bound_s):
    early = taken(stories.Story(), kind, asked_s=bound_s - 0.1, claimed_s=bound_s - 1.2, view_s=0.0)
    assert (early.moved, early.asked, early.over, early.bound_s) == (1, 1, 0, bound_s)
    assert early.last_s == pytest.approx(bound_s - 0.1)


@pytest.mark.parametrize("kind", ["crash", "killed_lease"])
def test_a_late_takeover_is_over_and_breaks_a_single_run(kind):
    story = stories.Story()
    story.crawled(but=(story.pages[0],))
    late = taken(story, kind, asked_s=9.0)
    assert late.over == 1
    assert judged(story, single=True).broken["P5 takeover time"] == 1
    assert "P5 takeover time" not in judged(story).broken
    assert "OVER" in report.text(judged(story, single=True))


def test_one_that_held_its_place_counts_from_the_view_that_took_it(story):
    story.view(30.0, 2)
    fair = taken(story, "silent", claimed_s=34.8, asked_s=36.0, lasts_s=40)
    assert (fair.over, fair.worst.counted_from, fair.bound_s) == (0, "view", pytest.approx(36.75))


def test_even_so_it_may_be_over(story):
    story.view(30.0, 2)
    assert taken(story, "silent", claimed_s=34.8, asked_s=37.0, lasts_s=40).over == 1


def test_a_request_in_flight_may_lengthen_a_drain(story):
    story.asks(-0.1, story.pages[0], "n1", ms=3_100)
    found = taken(story, "planned", claimed_s=3.1, asked_s=4.2)
    assert found.bound_s == pytest.approx(5.0)
    assert found.over == 0


@pytest.mark.parametrize(("frees_s", "over"), [(20.9, 0), (21.1, 1)])
def test_one_of_several_that_leave_in_turns_counts_from_its_view(story, frees_s, over):
    """As long as it asks, it has not been told to leave."""
    story.asks(18.0, story.other.home, "n1")
    story.view(19.0, 2)
    found = taken(story, "planned", claimed_s=19.5, asked_s=frees_s, lasts_s=30)
    assert (found.worst.counted_from, found.over) == ("view", over)


def test_one_that_asks_no_more_had_been_told(story):
    story.view(19.0, 2)
    assert taken(story, "planned", claimed_s=19.5, asked_s=20.5, lasts_s=30).over == 1


@pytest.mark.parametrize(("asked_s", "over"), [(2.7, 0), (2.9, 1)])
def test_a_killed_lease_counts_from_the_kill_not_from_the_command(story, asked_s, over):
    story.view(0.8, 2)
    found = taken(story, "killed_lease", claimed_s=1.2, asked_s=asked_s)
    assert (found.bound_s, found.over) == (2.0, over)
    for struck_s, counted_s in ((0.6, 0.6), (0.9, 0.8)):  # the command ends after its kill was seen
        story.faults[0]["struck_s"] = stories.START_S + struck_s
        (later,) = judged(story).takeovers
        assert later.last_s == pytest.approx(asked_s - counted_s)


def test_the_due_that_every_claim_sets_is_no_excuse(story):
    story.fault(0, "crash", "n1")
    story.moves(9, story.one.name, "n1", "n2", epoch=2, due_s=10)
    story.asks(10.1, story.pages[0], "n2", tenure=2)
    (found,) = judged(story, single=True).takeovers
    assert (found.over, found.bound_s) == (1, 7.75)


def test_a_request_of_the_old_owner_is_no_takeover(story):
    story.asks(7.0, story.pages[1], "n1")
    assert taken(story, "silent", claimed_s=6.0, asked_s=7.5).last_s == pytest.approx(7.5)


def test_a_due_that_moved_with_the_site_is_waited_for(story):
    story.fault(0, "crash", "n1")
    story.moves(5, story.one.name, "n1", "n2", epoch=2, due_s=60)
    story.asks(60.2, story.pages[0], "n2", tenure=2)
    (found,) = judged(story, single=True).takeovers
    assert found.over == 0


@pytest.mark.parametrize(
    "change", [{"frm": "n3"}, {"to": "n1"}, {"pending": 0}, {"cause": "joined"}, {"at_s": 200.0}], ids=str
)
def test_moves_that_are_not_of_the_fault_do_not_count(story, change):
    story.fault(0, "crash", "n1")
    move = {"at_s": 5.0, "site": story.one.name, "frm": "n1", "to": "n2", "epoch": 2} | change
    story.moves(move.pop("at_s"), move.pop("site"), move.pop("frm"), move.pop("to"), **move)
    story.asks(5.5, story.pages[0], "n2", tenure=2)
    (found,) = judged(story).takeovers
    assert found.moved == 0


def alone(
    story: stories.Story,
    kind: str,
    *,
    name: str,
    asked_s: float | None,
    moves_s: float | None = None,
    lasts_s: float = 0,
) -> takeovers.Takeover:
    """A site that n1 had begun and left half done when it was struck at 10 s."""
    for i, url in enumerate(story.pages[:2]):
        story.asks(7 + i, url, "n1")
    story.fault(10, kind, "n1", name=name, lasts_s=lasts_s)
    if moves_s is not None:
        story.moves(moves_s, story.one.name, "n1", "n2", epoch=2)
    if asked_s is not None:
        story.asks(asked_s, story.pages[2], "n2", tenure=2)
    (found,) = judged(story, single=True).takeovers
    return found


def test_a_site_that_nobody_ever_took_is_over(story):
    found = alone(story, "crash", name="kill", asked_s=None)
    assert (found.moved, found.judged, found.over) == (0, 1, 1)
    assert found.worst.late == "no move in time"
    verdict = judged(story, single=True)
    assert verdict.broken["P5 takeover time"] == 1
    assert "claimed after - s, asked after - s of 7.75 s: no move in time" in report.text(verdict)


def test_a_site_that_was_taken_later_than_any_window_is_over(story):
    assert alone(story, "crash", name="kill", moves_s=200, asked_s=201).over == 1


def test_a_claim_without_a_request_is_over(story):
    found = alone(story, "crash", name="kill", moves_s=15, asked_s=None)
    assert (found.over, found.worst.late) == (1, "nobody asked in time")


@pytest.mark.parametrize(("asked_s", "over"), [(18.9, 0), (19.1, 1)])
def test_a_site_that_moves_on_before_it_was_due_counts_from_the_join_that_took_it(story, asked_s, over):
    """Claimed at 15 s by one that had not yet waited its delay at 16 s, when a view gave it to one that had joined."""
    story.view(16, 3)
    story.moves(16.5, story.one.name, "n2", "n3", epoch=3, cause="joined")
    story.asks(asked_s, story.pages[2], "n3", tenure=3)
    found = alone(story, "crash", name="kill", moves_s=15, asked_s=None)
    assert (found.over, found.bound_s) == (over, pytest.approx(9))


def test_a_page_in_flight_at_the_strike_is_something_to_ask(story):
    for i, url in enumerate(story.pages[2:]):
        story.asks(3 + i, url, "n1")
    del story.crawl[-1]
    assert alone(story, "crash", name="kill", asked_s=None).over == 1


def test_the_victim_itself_as_a_new_incarnation_may_go_on(story):
    story.asks(16, story.pages[2], "n1", tenure=2)
    found = alone(story, "crash", name="kill-and-restart-at-once", asked_s=None)
    assert (found.judged, found.over, found.last_s) == (1, 0, pytest.approx(6))


@pytest.mark.parametrize(("lasts_s", "over"), [(2.0, 0), (20.0, 1)])
def test_a_live_victim_rightly_keeps_its_sites_for_a_while(story, lasts_s, over):
    found = alone(story, "silent", name="cut-etcd", asked_s=None, lasts_s=lasts_s)
    assert (found.judged, found.over) == (over, over)


def test_a_site_with_nothing_left_to_ask_is_counted_apart(story):
    for i, url in enumerate(story.pages[2:]):
        story.asks(3 + i, url, "n1")
    story.in_order()
    found = alone(story, "crash", name="kill", asked_s=None)
    assert (found.judged, found.idle, found.over) == (0, 1, 0)
    text = report.text(judged(story, single=True))
    assert "none    P5 takeover time    none to judge, 1 more sites had nothing left to ask" in text
    assert "none to judge" in report.combine([("kill", judged(story, single=True))])


@pytest.mark.parametrize("name", ["freeze-long", "cut-etcd", "cut-etcd-out-only", "cut-both", "keepalives-lost"])
def test_where_the_lease_must_end_the_view_is_no_excuse(story, name):
    story.view(40, 2)
    assert alone(story, "silent", name=name, moves_s=45, asked_s=46, lasts_s=50).over == 1


@pytest.mark.parametrize(("view_s", "over"), [(17.9, 0), (18.1, 1)])
def test_a_node_that_confirms_nothing_keeps_its_lease_for_one_view_lease_more(story, view_s, over):
    story.view(view_s, 2)
    assert alone(story, "silent", name="confirms-lost", moves_s=23.5, asked_s=24.6, lasts_s=30).over == over
