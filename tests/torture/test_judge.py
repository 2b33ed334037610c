"""The judge of a torture run: each kind of violation is found, and what is explained is explained rightly."""

import argparse
import dataclasses
import json

import msgspec
import pytest

from coordinator import small_web
from tests.torture import faults_alone, forest, judge, repeats, report, stories, takeovers


@pytest.fixture
def story() -> stories.Story:
    return stories.Story()


def judged(story: stories.Story, *, single: bool = False) -> judge.Verdict:
    return judge.verdict(story.told(), single=single)


def again(story: stories.Story) -> repeats.Repeat:
    """The only repeat."""
    (found,) = repeats.all_of(story.told())
    return found


def test_a_clean_run_holds(story, tmp_path):
    story.crawled()
    for i in range(40):
        story.sample(i * 5, "n1", 80 + i * 0.01)
    verdict = judge.judge(story.write(tmp_path))
    assert verdict.held
    assert verdict.broken == {}
    assert verdict.gaps.judged == len(story.requests) - 2
    assert verdict.gaps.smallest_ratio == pytest.approx(1.1)
    assert verdict.pages.asked == verdict.pages.wanted
    assert verdict.repeats_by_why == {}
    assert verdict.bad_lines == 0
    assert report.text(verdict).startswith("ALL HELD\n")
    assert json.loads(report.encode(verdict))["held"] is True
    assert sum(count for _, count in verdict.gaps.histogram) == verdict.gaps.judged


def test_unfinished_lines_are_counted_and_no_fault(story, tmp_path):
    story.crawled()
    folder = story.write(tmp_path)
    with (folder / "out" / "crawl-n1.jsonl").open("a") as log:
        log.write('{"start_ms": 17')
    assert judge.judge(folder).bad_lines == 1


# --- P1 -------------------------------------------------------------------------------------------------------------


def test_a_short_gap_is_found_with_both_requests_and_the_faults_before(story):
    story.crawled(but=(story.pages[3],))
    last_s = story.last_s(story.one.name)
    story.fault(last_s - 5, "silent", "n1", name="freeze-long")
    story.fault(last_s - 200, "crash", "n2", name="kill")
    story.asks(last_s + 0.9, story.pages[3], "n2", tenure=2)
    verdict = judged(story)
    assert verdict.broken["P1 gap"] >= 1
    (short,) = verdict.gaps.worst
    assert (short.site, short.first.node, short.second.node) == (story.one.name, "n1", "n2")
    assert short.gap_s == pytest.approx(0.9)
    assert [name.split(" ")[0] for name in short.faults] == ["freeze-long"]
    assert verdict.gaps.smallest_move_ratio == pytest.approx(0.9)
    assert verdict.gaps.moves == 1
    assert dict(verdict.gaps.histogram)["below 1"] == 1
    text = report.text(verdict)
    assert text.startswith("BROKEN: P1 gap")
    assert "TOO SHORT" in text
    assert "freeze-long n1" in text


def test_robots_txt_is_a_request_like_any_other(story):
    story.crawled()
    last_s = story.last_s(story.one.name)
    story.asks(last_s + 0.5, f"http://{story.one.name}/robots.txt")
    assert judged(story).gaps.violations == 1


def test_a_slow_site_whose_record_was_lost_is_owed_the_minimum(story):
    """Only just after the store lost it, and only as far as the node's own line agrees."""
    story.web = forest.grow(8, stories.PAGES, stories.SEED)
    slow = story.web.sites[7]
    story.delay_s = 0.5
    story.asks(1, slow.pages[0].url)
    story.asks(1.6, f"http://{slow.name}/robots.txt", tenure=2)
    assert judged(story).gaps.violations == 1
    story.fault(1.2, "store", name="store-slow")
    assert judged(story).gaps.violations == 1, "that forgets nothing"
    story.fault(1.2, "store", name="store-killed")
    story.run["store"] = "cluster"
    assert judged(story).gaps.violations == 1, "strict"
    story.run["store"] = "single"
    verdict = judged(story)
    assert (verdict.gaps.violations, verdict.gaps.forgotten) == (0, 1)
    story.crawl[-1] = msgspec.structs.replace(story.crawl[-1], delay_ms=1000)
    assert judged(story).gaps.violations == 1


# --- P2 -------------------------------------------------------------------------------------------------------------


def test_a_page_that_nobody_asked_for_is_lost(story):
    story.crawled(but=(story.pages[2],))
    verdict = judged(story)
    assert verdict.broken == {"P2 nothing lost": 1, "liveness": 1}
    assert verdict.pages.missing == (story.pages[2],)
    assert story.pages[2] in report.text(verdict)


def test_a_page_that_its_record_accounts_for_is_not_lost(story):
    story.crawled(but=(story.pages[2],))
    story.run["records"] = {story.one.name: {"pending": 0, "later": 0, "set_aside": {"unanswered": 1}}}
    assert judged(story).held
    story.ends_s = 20
    story.run["records"] = {story.one.name: {"pending": 1, "later": 0, "set_aside": {}}}
    assert judged(story).pages.unaccounted == ()
    story.run["done"] = False
    assert judged(story).pages.crooked == (), "it was still at it"
    story.run["done"] = True
    assert judged(story).broken == {"P2 nothing lost": 1}
    assert "still queued after the end" in judged(story).pages.crooked[0]
    story.run["records"] = {story.other.name: {"pending": 1, "later": 0, "set_aside": {}}}
    verdict = judged(story)
    assert verdict.broken == {"P2 nothing lost": 2}
    assert verdict.pages.unaccounted == (story.one.name,)


def test_a_page_without_a_whole_answer_is_lost_unless_the_record_has_it(story):
    story.ends_s = 20
    story.crawled(but=(story.pages[2],))
    story.asks(15, story.pages[2], outcome="failed:timeout")
    assert judged(story).pages.unanswered == (story.pages[2],)
    assert judged(story).held, "no record was read"
    story.run["records"] = {}
    assert judged(story).broken == {"P2 nothing lost": 1}
    story.run["records"] = {story.one.name: {"later": 1}}
    assert judged(story).held


def test_private_pages_must_be_in_the_record_and_nowhere_else(story):
    story.web = forest.grow(8, 16, stories.SEED)
    story.ends_s = 100
    site = story.web.sites[7]
    private = next(page.url for page in site.pages if page.kind is small_web.Kind.PRIVATE)
    story.crawled()
    story.run["records"] = {}
    assert site.name in (judged(story).pages.unaccounted or ())
    story.run["records"] = {
        one.name: {"set_aside": {"robots": sum(page.kind is small_web.Kind.PRIVATE for page in one.pages)}}
        for one in story.web.sites
    }
    assert judged(story).held
    assert "refused by robots.txt" not in report.text(judged(story))
    story.run["records"][site.name]["set_aside"]["robots"] += 1
    assert "2 refused by robots.txt, not 1" in report.text(judged(story))
    story.run["records"][site.name] = {"set_aside": {"robots": 1}, "seen": len(site.pages) + 1}
    assert f"{len(site.pages) + 1} seen, but {len(site.pages) - 1} answered" in report.text(judged(story))
    story.run["records"][site.name]["seen"] -= 1
    assert judged(story).held
    story.asks(60, private)
    verdict = judged(story)
    assert verdict.broken == {"P2 nothing lost": 1}
    assert verdict.pages.trespasses == (private,)


def test_a_host_that_nobody_linked_is_a_trespass(story):
    story.crawled()
    story.asks(20, "http://nobody.example/robots.txt", status=404)
    story.requests[-1]["site"] = ""
    story.asks(20.1, "http://nobody.example/robots.txt", status=404, outcome=None)
    story.requests[-1]["site"] = ""
    verdict = judged(story)
    assert verdict.pages.trespasses == ("http://nobody.example/robots.txt",)
    assert verdict.broken == {"P2 nothing lost": 1}, "and no gap of it is judged"


def test_a_crawl_that_did_not_end_does_not_hold(story):
    story.crawled()
    story.run["done"] = False
    assert judged(story).broken == {"P2 nothing lost": 1}


# --- P3 -------------------------------------------------------------------------------------------------------------


def test_a_repeat_without_a_reason_is_a_violation(story):
    story.crawled()
    story.asks(20, story.pages[0], tenure=2)
    verdict = judged(story)
    assert verdict.broken == {"P3 bounded repeats": 1}
    assert again(story).why == repeats.UNEXPLAINED
    assert "UNEXPLAINED" in report.text(verdict)


def test_robots_txt_may_be_asked_for_again(story):
    story.crawled()
    for at_s in (20, 30):
        story.asks(at_s, f"http://{story.one.name}/robots.txt")
    assert judged(story).held


@pytest.mark.parametrize(
    ("outcome", "status", "why"),
    [
        ("failed:aborted", 0, repeats.ABORTED),
        ("failed:late", 0, repeats.ABORTED),
        ("failed:guard", 0, repeats.ABORTED),
        ("failed:timeout", 0, repeats.FAILED),
        ("failed:disconnected", 0, repeats.FAILED),
        ("fetched", 503, repeats.FAILED),
        ("fetched", 429, repeats.FAILED),
        ("fetched", 200, repeats.UNEXPLAINED),
        ("fetched", 404, repeats.UNEXPLAINED),
        ("redirected", 302, repeats.UNEXPLAINED),
        (None, 200, repeats.UNEXPLAINED),
    ],
)
def test_what_the_crawl_line_says_of_the_request_before(story, outcome, status, why):
    story.asks(1, story.pages[0], outcome=outcome, status=status)
    story.asks(20, story.pages[0], "n2", tenure=2)
    assert again(story).why == repeats.UNEXPLAINED, "nothing was the matter"
    if why == repeats.ABORTED:
        story.moves(1.5, story.one.name, "n1", "n2", epoch=2)
    else:
        story.fault(0.5, "none", "n1", name="cut-web", lasts_s=1)
    assert again(story).why == why


@pytest.mark.parametrize("kind", ["etcd", "silent", "killed_lease", "planned", "clock"])
def test_lost_authority_explains_what_was_aborted(story, kind):
    story.asks(1, story.pages[0], outcome="failed:aborted")
    story.fault(0.5, kind, "n3", lasts_s=1)
    story.asks(20, story.pages[0], "n2", tenure=2)
    assert again(story).why == repeats.UNEXPLAINED, "another node's"
    story.fault(0.5, kind, *(() if kind == "etcd" else ("n1",)), lasts_s=1)
    assert again(story).why == repeats.ABORTED


def test_a_contact_that_its_node_found_late_is_told_apart(story):
    story.asks(1, story.pages[0], outcome="failed:guard")
    story.asks(20, story.pages[0], tenure=2)
    told = story.told()
    (found,) = repeats.all_of(dataclasses.replace(told, late=[("n1", stories.WALL_S + stories.START_S + 1.4)]))
    assert found.why == repeats.LATE
    (found,) = repeats.all_of(dataclasses.replace(told, late=[("n2", stories.WALL_S + stories.START_S + 1.4)]))
    assert found.why == repeats.UNEXPLAINED


@pytest.mark.parametrize(
    ("name", "why"),
    [("freeze-long", repeats.IN_FLIGHT), ("swizzled", repeats.IN_FLIGHT), ("cut-both", repeats.UNEXPLAINED)],
)
def test_a_request_without_a_line_needs_a_process_that_could_not_write_it(story, name, why):
    story.asks(1, story.pages[0], outcome=None)
    story.fault(0.5, "silent", "n1", name=name, lasts_s=5)
    story.asks(20, story.pages[0], "n2", tenure=2)
    assert again(story).why == why


def test_a_commit_is_on_the_way_for_longer_only_where_a_store_was_broken(story):
    story.asks(1, story.pages[0])
    story.fault(4, "crash", "n1")
    story.asks(20, story.pages[0], "n2", tenure=2)
    assert again(story).why == repeats.UNEXPLAINED
    story.fault(0.5, "store", name="store-frozen", lasts_s=3)
    assert again(story).why in {repeats.IN_FLIGHT, repeats.FORGOT}


@pytest.mark.parametrize(
    ("kind", "victims", "at_s", "outcome", "why"),
    [
        ("crash", ("n1",), 1.5, None, repeats.IN_FLIGHT),  # killed under the request
        ("crash", ("n1",), 1.5, "fetched", repeats.IN_FLIGHT),  # or before its commit
        ("crash", ("n2",), 1.5, None, repeats.UNEXPLAINED),  # somebody else was
        ("crash", ("n1",), 0.5, "fetched", repeats.UNEXPLAINED),  # killed before it asked
        ("crash", ("n1",), 19.0, "fetched", repeats.UNEXPLAINED),  # long after its commit
        ("silent", ("n1",), 1.5, "fetched", repeats.IN_FLIGHT),
        ("silent", ("n3",), 1.5, "fetched", repeats.UNEXPLAINED),
        ("killed_lease", ("n1",), 1.5, "fetched", repeats.UNCOMMITTED),
        ("etcd", (), 1.5, "fetched", repeats.UNCOMMITTED),
        ("etcd", (), 1.5, None, repeats.UNEXPLAINED),  # nobody dies of that
        ("store", (), 2.5, "fetched", repeats.FORGOT),
        ("store", (), 15.0, "fetched", repeats.UNEXPLAINED),  # what was committed so long before is on the disk
        ("store", ("n1",), 2.5, "fetched", repeats.UNCOMMITTED),  # its way to the store: that forgot nothing
        ("store", ("n3",), 2.5, "fetched", repeats.UNEXPLAINED),
        ("store", ("redis2",), 2.5, "fetched", repeats.FORGOT),
        ("none", (), 1.5, "fetched", repeats.UNEXPLAINED),
    ],
)
def test_what_a_fault_explains(story, kind, victims, at_s, outcome, why):
    story.asks(1, story.pages[0], outcome=outcome)
    story.fault(at_s, kind, *victims)
    story.asks(20, story.pages[0], "n2", tenure=2)
    found = again(story)
    assert found.why == why
    assert found.fault == (repeats.NOBODY if why == repeats.UNEXPLAINED else kind)


def test_a_node_that_goes_on_knows_what_it_has_committed(story):
    """Another node's tenure may lack a commit; the same tenure may only where the store forgot."""
    story.asks(1, story.pages[0])
    story.fault(1.2, "silent", "n1", lasts_s=3)
    story.asks(20, story.pages[0])
    story.fault(1.3, "etcd", lasts_s=3)
    assert again(story).why == repeats.UNEXPLAINED
    story.fault(1.5, "store")
    assert again(story).why == repeats.FORGOT


@pytest.mark.parametrize(("moved", "why"), [(False, repeats.UNEXPLAINED), (True, repeats.UNCOMMITTED)])
def test_a_strict_store_forgets_nothing_that_it_has_answered(story, *, moved, why):
    story.run["store"] = "cluster"
    story.asks(1, story.pages[0])
    story.fault(1.5, "store")
    story.asks(20, story.pages[0], "n2" if moved else "n1", tenure=2 if moved else 1)
    assert again(story).why == why


def test_a_line_of_a_stepped_clock_is_not_given_to_a_later_request(story):
    """Cut short with a clock that was wrong, asked again two seconds later with one that was right."""
    story.fault(0, "clock", "n1", lasts_s=3)
    story.asks(2, story.pages[0], outcome="failed:aborted", skew_ms=30_000)
    story.asks(4, story.pages[0])
    assert again(story).why == repeats.ABORTED


def test_a_request_that_was_never_logged_is_not_given_the_line_of_its_repeat(story):
    story.asks(1, story.pages[0], outcome=None)
    story.fault(1.5, "crash", "n1")
    story.asks(20, story.pages[0], "n1", tenure=2)
    assert (again(story).why, again(story).outcome) == (repeats.IN_FLIGHT, None)


def test_one_fault_allows_two_repeats_of_a_site_and_a_move_two_more(story):
    story.fault(1, "silent", "n1", lasts_s=60)
    for i in range(3):
        story.asks(2 + i * 1.1, story.pages[i])
    for i in range(3):
        story.asks(40 + i * 1.1, story.pages[i], "n2", tenure=2)
    (many,) = judged(story).repeats_too_many
    assert (many.repeats, many.allowed) == (3, 2)
    story.moves(39, story.one.name, "n1", "n2", epoch=2)
    assert judged(story).repeats_too_many
    story.moves(45, story.one.name, "n2", "n1", epoch=3)
    assert not judged(story).repeats_too_many


def test_repeats_are_told_by_fault(story):
    story.crawled(but=(story.pages[0],))
    story.asks(31, story.pages[0], outcome=None)
    story.fault(31.5, "crash", "n1", name="kill")
    story.asks(50, story.pages[0], "n2", tenure=2)
    verdict = judged(story)
    assert verdict.held
    assert verdict.repeats_by_fault == {"kill": {repeats.IN_FLIGHT: 1}}
    assert f"kill: 1 {repeats.IN_FLIGHT}" in report.text(verdict)


# --- P4, and the nodes' own gaps -------------------------------------------------------------------------------------


def test_a_request_of_an_older_tenure_is_found(story):
    story.crawled()
    story.asks(20, story.pages[0], "n2", tenure=2, outcome="failed:aborted")
    story.asks(22, story.pages[0], "n1", tenure=1)
    verdict = judged(story)
    assert verdict.own_logs.fencing_violations == 1
    assert verdict.broken["P4 fencing"] == 1


def test_a_node_that_breaks_its_own_delay_is_found_in_its_log(story):
    story.crawled()
    story.crawl[1] = msgspec.structs.replace(story.crawl[1], delay_ms=60_000)
    assert judged(story).own_logs.gap_violations == 0, "the first of its site"
    story.crawl = [msgspec.structs.replace(one, delay_ms=1_200) for one in story.crawl]
    assert judged(story).own_logs.gap_violations > 0


def test_a_stepped_clock_accuses_nobody_and_hides_nothing(story):
    story.crawled(but=(story.pages[3], story.pages[4]))
    story.fault(10, "clock", "n2", name="clock-stepped", lasts_s=20)
    story.asks(12, story.pages[3], "n2", tenure=2, skew_ms=3_600_000)
    story.asks(14, story.pages[4], "n2", tenure=2, skew_ms=-3_600_000)
    assert judged(story).broken == {}
    story.faults.clear()
    assert judged(story).own_logs.gap_violations + judged(story).own_logs.fencing_violations > 0


# --- P5 -------------------------------------------------------------------------------------------------------------


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


# --- the fault itself ------------------------------------------------------------------------------------------------


def test_a_single_run_needs_its_one_fault_whole(story):
    story.crawled()
    assert judged(story, single=True).broken == {"fault": 1}
    assert "NOT THE FAULT: 0 faults struck, not one" in report.text(judged(story, single=True))
    story.fault(10, "none", name="etcd-compacted")
    assert judged(story, single=True).held
    story.faults[0]["trouble"] = "etcd was not compacted"
    assert judged(story, single=True).broken == {"fault": 1}
    assert judged(story).held
    assert "etcd-compacted at 10 s was not whole: etcd was not compacted" in report.text(judged(story))
    story.faults[0]["trouble"] = ""
    story.run["skipped"] = ["kill: no node is free"]
    assert judged(story, single=True).broken == {"fault": 1}


# --- recovery and memory ---------------------------------------------------------------------------------------------


def test_a_node_that_did_nothing_after_the_last_fault_is_found(story):
    story.fault(0, "silent", "n2", lasts_s=0.5)
    story.crawled()
    for i in range(20):
        story.sample(i * 5, "n1", 80)
    story.sample(5, "n2", 80)
    verdict = judged(story)
    assert verdict.idle_nodes == ("n2",)
    assert verdict.broken == {"recovery": 1}
    story.asks(20, story.pages[0], "n2", outcome="failed:timeout", tenure=2)
    assert judged(story).idle_nodes == ()


@pytest.mark.parametrize(
    "run", [{"recovered_s": None}, {"died_alone": [{"node": "n1", "status": 1}]}, {"drained": {"n1": -9}}]
)
def test_who_did_not_recover_is_told(story, run):
    story.crawled()
    story.run |= run
    assert judged(story).broken == {"recovery": 1}


def test_where_readiness_was_asked_a_crawl_that_is_over_idles_nobody(story):
    story.fault(290, "silent", "n2", lasts_s=0.5)
    story.crawled()
    story.sample(5, "n2", 80)
    story.run["recovered_s"] = 0.5
    assert judged(story).held


def test_memory_that_grows_is_found_in_the_longest_life_of_a_process(story):
    story.crawled()
    for i in range(60):
        story.sample(i * 5, "n1", 80 + i, pid=7)
        story.sample(i * 5, "n2", 80 + (i % 20) * 3, pid=i // 20)
        story.sample(i * 5, "redis", 50 + i)
    verdict = judged(story)
    found = {one.process: one for one in verdict.memory}
    assert found["n1"].flat is False
    assert found["n1"].growth_mb == pytest.approx(30)
    assert found["n2"].minutes == pytest.approx(95 / 60)
    assert found["redis"].flat is False
    assert verdict.broken == {"memory": 2}, "a store grows with what is found"


def test_a_site_that_falls_silent_with_pages_to_ask_is_found(story):
    story.crawled(but=(story.pages[3],))
    story.run["calm_s"] = stories.START_S + 10
    story.asks(40, story.pages[3])
    assert judged(story).held
    del story.requests[-1], story.crawl[-1]
    story.asks(50, story.pages[3])
    verdict = judged(story)
    assert verdict.broken == {"liveness": 1}
    assert f"SILENT  {story.one.name} for 40.0 s of 31.0 s from 10.0 s on, with 1 pages" in report.text(verdict)
    story.asks(12, f"http://{story.one.name}/p/9999.html", outcome="failed:timeout")
    story.requests.pop()
    assert not judged(story).quiet, "it backs off"


def test_memory_that_grows_in_every_life_is_found_by_its_slope(story):
    story.crawled()
    for life in range(3):
        for i in range(40):
            story.sample(life * 200 + i * 5, "n1", 80 + i * 5 / 60 * 1.5, pid=life)
            story.sample(life * 200 + i * 5, "n2", 80 + i * 5 / 60 * 0.5, pid=life)
    found = {one.process: one for one in judged(story).memory}
    assert (found["n1"].flat, found["n1"].mb_a_minute) == (False, pytest.approx(1.5))
    assert (found["n2"].flat, found["n2"].mb_a_minute) == (True, pytest.approx(0.5))
    assert "1 of 2 nodes grew" in report.text(judged(story))


def test_a_short_life_says_nothing_of_memory(story):
    story.crawled()
    for i in range(5):
        story.sample(i * 5, "n1", 80 + 30 * i)
    assert judged(story).memory[0].flat is None
    assert judged(story).held
    assert "none    memory              not judged (1 of 1 too short)" in report.text(judged(story))


# --- tables ----------------------------------------------------------------------------------------------------------


def test_the_table_of_faults_adds_runs_up_and_puts_the_broken_first(story):
    taken(story, "crash", asked_s=6.5)
    story.crawled(but=(story.pages[0],))
    good = judged(story, single=True)
    bad = stories.Story()
    bad.crawled(but=(bad.pages[1],))
    table = report.combine([("kill", good), ("kill", good), ("term", judged(bad, single=True))])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    assert [row[0] for row in rows[2:]] == ["term", "kill"]
    kill = dict(zip(rows[0], rows[3], strict=True))
    assert (kill["runs"], kill["sites moved"], kill["worst s"], kill["bound s"]) == ("2", "2", "6.50", "7.75")
    assert kill["violations"] == "none"
    assert "P2 nothing lost 1" in rows[2][-1]


def test_a_run_that_did_not_finish_makes_the_series_fail(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(faults_alone, "_spawn", lambda *_: 0)
    options = argparse.Namespace(store="single", faults="kill", runs=2, out=tmp_path / "out", at_once=1)
    assert faults_alone.run_all(options) == faults_alone.NO
    assert "did not finish 2" in (tmp_path / "out" / "faults.md").read_text()


def test_a_run_that_left_nothing_stands_in_the_table(story):
    taken(story, "crash", asked_s=6.5)
    table = report.combine([("kill", judged(story, single=True))], unfinished=["kill", "term"])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    found = {row[0]: row for row in rows[2:]}
    assert "did not finish 1" in found["kill"][-1]
    assert found["kill"][1] == "2"
    assert found["term"][-1] == "did not finish 1"
