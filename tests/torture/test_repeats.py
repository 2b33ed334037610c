"""Every repeat has the reason that it has, and no other; what has none is a violation."""

import dataclasses

import pytest

from tests.torture import judge, repeats, report, stories


@pytest.fixture
def story() -> stories.Story:
    return stories.Story()


def judged(story: stories.Story, *, single: bool = False) -> judge.Verdict:
    return judge.verdict(story.told(), single=single)


def again(story: stories.Story) -> repeats.Repeat:
    """The only repeat."""
    (found,) = repeats.all_of(story.told())
    return found


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
