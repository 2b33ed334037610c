"""The audit accuses exactly what breaks P1, P3 or P4: each planted fault is found, and a polite log has none."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared import audit, records

BASE_MS = 1_700_000_000_000


def line(start_ms: int, **fields: Any) -> records.CrawlLine:
    plain: dict[str, Any] = {
        "site": "a.test",
        "url": f"http://a.test/{start_ms}",
        "node": "n1",
        "epoch": 10,
        "tenure": 10,
        "status": 200,
        "outcome": "fetched",
        "visit": "first",
        "bytes": 100,
        "ms": 20,
        "delay_ms": 1_000,
        "due_term": "minimum",
        "clock_error_ms": 5,
    }
    return records.CrawlLine(start_ms=BASE_MS + start_ms, **(plain | fields))


def second(start_ms: int, **fields: Any) -> records.CrawlLine:
    """A request of the next owner."""
    return line(start_ms, **({"node": "n2", "tenure": 20, "epoch": 20} | fields))


def moved(epoch: int, time_ms: int, **fields: Any) -> records.Handoff:
    plain: dict[str, Any] = {
        "kind": "moved",
        "node": fields.get("to", "n2"),
        "site": "a.test",
        "cause": "joined",
        "from_node": "n1",
        "to": "n2",
        "settled_by": "ack",
    }
    return records.Handoff(time_ms=BASE_MS + time_ms, epoch=epoch, **(plain | fields))


def examine(lines: list[records.CrawlLine], handoffs: list[records.Handoff] | None = None) -> audit.Findings:
    errors_ms: dict[str, int] = {}
    for one in lines:
        errors_ms[one.node] = max(errors_ms.get(one.node, 0), abs(one.clock_error_ms))
    return audit.examine(lines, handoffs or [], clock_errors_ms=errors_ms)


def accused(findings: audit.Findings) -> list[tuple[str, str]]:
    return [(one.promise, one.reason) for one in findings.violations]


def test_a_polite_log_of_two_owners_has_no_violation():
    found = examine(
        [line(0, visit="robots"), line(1_000), line(2_100), second(3_500), second(4_500)],
        [moved(20, 3_000)],
    )
    assert accused(found) == []
    assert (found.requests, found.sites, found.handoffs, found.repeats, found.unjudged) == (5, 1, 1, 0, 0)
    assert found.gaps == 4
    assert found.smallest_gap_ratio == 1.0


def test_nothing_is_found_in_nothing():
    assert examine([]) == audit.Findings()


# --- P1 ---


def test_a_gap_one_millisecond_short_within_a_tenure_is_found():
    found = examine([line(0), line(999)])
    assert accused(found) == [("P1", "gap_too_short")]
    only = found.violations[0]
    assert (only.site, only.gap_ms, only.delay_ms, only.margin_ms) == ("a.test", 999, 1_000, 0)
    assert found.smallest_gap_ratio == 0.999


def test_the_order_of_the_lines_does_not_matter():
    lines = [line(0), line(1_000), line(1_500), line(2_500)]
    assert examine(lines) == examine(lines[::-1])
    assert accused(examine(lines)) == [("P1", "gap_too_short")]


def test_the_delay_that_counts_is_that_of_the_later_request():
    assert accused(examine([line(0, delay_ms=5_000), line(1_000)])) == []
    assert accused(examine([line(0), line(1_000, delay_ms=5_000)])) == [("P1", "gap_too_short")]


def test_robots_requests_count_for_the_gap():
    assert accused(examine([line(0, visit="robots"), line(500)])) == [("P1", "gap_too_short")]


def test_other_sites_do_not_count():
    assert accused(examine([line(0), line(1, site="b.test"), line(1_000)])) == []


def test_a_gap_across_nodes_is_judged_only_beyond_both_clock_errors():
    table = [
        (989, ["gap_too_short"], 0),  # 989 + 5 + 5 < 1000
        (990, [], 1),
        (1_009, [], 1),
        (1_010, [], 0),
    ]
    for start_ms, reasons, unjudged in table:
        found = examine([line(0), second(start_ms)])
        assert [reason for _, reason in accused(found)] == reasons, start_ms
        assert found.unjudged == unjudged, start_ms


def test_a_negative_clock_error_is_an_error_all_the_same():
    assert examine([line(0, clock_error_ms=-5), second(990, clock_error_ms=-5)]).unjudged == 1


def test_an_uncertain_request_of_another_node_hides_no_short_gap():
    found = examine([line(0), second(200, clock_error_ms=5_000), line(600)])
    assert ("P1", "gap_too_short") in accused(found)


def test_one_request_is_one_violation_of_the_gap():
    found = examine([line(0), second(100), line(200)])
    assert accused(found).count(("P1", "gap_too_short")) == 2


def test_a_node_in_another_tenure_may_be_another_process_with_another_clock():
    assert examine([line(0), line(995, tenure=20)]).unjudged == 1
    assert accused(examine([line(0), line(980, tenure=20)])) == [("P1", "gap_too_short")]


def test_a_short_gap_in_a_handoff_line_is_found_without_the_crawl_log_of_the_old_owner():
    first = moved(20, 0, kind="first_fetch", gap_ms=900, delay_ms=1_000, first_fetch_ms=BASE_MS + 900)
    assert accused(examine([second(900)], [moved(20, 0), first])) == [("P1", "handoff_gap_too_short")]
    assert accused(examine([second(900, clock_error_ms=100)], [moved(20, 0), first])) == []


def test_a_handoff_line_of_a_node_without_a_crawl_log_is_not_judged():
    first = moved(20, 0, to="n7", kind="first_fetch", gap_ms=900, delay_ms=1_000)
    found = examine([line(0)], [first])
    assert (accused(found), found.unjudged) == ([], 1)


# --- P4 ---


def test_the_newer_tenure_is_the_one_that_is_named():
    found = examine([line(0, tenure=5), second(2_000), line(4_000)])
    assert [(one.reason, one.previous_tenure) for one in found.violations] == [("older_tenure_after_newer", 20)]


def test_a_request_of_an_older_tenure_after_the_first_of_a_newer_is_found():
    found = examine([line(0), second(2_000), line(4_000)])
    assert accused(found) == [("P4", "older_tenure_after_newer")]
    assert (found.violations[0].tenure, found.violations[0].previous_tenure) == (10, 20)


def test_an_older_tenure_within_the_clock_errors_is_not_judged():
    found = examine([second(0, delay_ms=0), line(8, delay_ms=0)])
    assert accused(found) == []
    assert found.unjudged >= 1


def test_a_tenure_of_two_nodes_is_found_once():
    found = examine([line(0), line(1_100, node="n2"), line(2_200, node="n2")])
    assert accused(found) == [("P4", "tenure_of_two_nodes")]


def test_a_request_in_a_tenure_that_was_handed_to_another_is_found():
    found = examine([second(0, node="n3")], [moved(20, 0)])
    assert accused(found) == [("P4", "request_of_another_owner")]


def test_moves_whose_epochs_fall_are_found():
    lines = [line(0), second(5_000)]
    late = [moved(20, 3_000), moved(30, 2_000, to="n1", from_node="n2")]
    assert accused(examine(lines, late)) == [("P4", "handoff_order")]
    assert accused(examine(lines, [moved(20, 3_000), moved(30, 4_000, to="n1", from_node="n2")])) == []


def test_one_epoch_that_gave_a_site_to_two_nodes_is_found():
    found = examine([line(0)], [moved(20, 0), moved(20, 100, to="n3")])
    assert accused(found) == [("P4", "handoff_order")]


def test_a_handoff_line_that_was_appended_twice_is_one_handoff():
    found = examine([second(0)], [moved(20, 0), moved(20, 0)])
    assert (accused(found), found.handoffs) == ([], 1)


# --- P3 ---

PAGE = "http://a.test/page"


def test_a_page_fetched_twice_in_one_tenure_is_found():
    found = examine([line(0, url=PAGE), line(2_000, url=PAGE)])
    assert accused(found) == [("P3", "repeat_in_tenure")]
    assert found.repeats == 1


def test_a_page_fetched_again_after_an_ack_is_found():
    lines = [line(0, url=PAGE), second(2_000, url=PAGE)]
    assert accused(examine(lines, [moved(20, 1_000)])) == [("P3", "repeat_after_ack")]


def test_a_page_fetched_again_after_a_crash_is_counted_and_allowed():
    lines = [line(0, url=PAGE), second(2_000, url=PAGE)]
    found = examine(lines, [moved(20, 1_000, settled_by="time", cause="lease_lost")])
    assert (accused(found), found.repeats) == ([], 1)


def test_an_ack_of_another_node_says_nothing_of_this_one():
    lines = [line(0, url=PAGE), second(2_000, url=PAGE)]
    assert accused(examine(lines, [moved(20, 1_000, from_node="n9")])) == []


def test_a_redirect_and_an_unchanged_page_are_finished_visits():
    for outcome, status in (("redirected", 301), ("not_modified", 304)):
        found = examine([line(0, url=PAGE, outcome=outcome, status=status), line(2_000, url=PAGE)])
        assert accused(found) == [("P3", "repeat_in_tenure")], outcome


def test_more_repeats_after_a_crash_than_could_be_uncommitted_are_found_once():
    urls = [f"{PAGE}{number}" for number in range(5)]
    lines = [line(2_000 * number, url=url) for number, url in enumerate(urls)]
    lines += [second(20_000 + 2_000 * number, url=url) for number, url in enumerate(urls)]
    found = examine(lines, [moved(20, 15_000, settled_by="time", cause="lease_lost")])
    assert (accused(found), found.repeats) == ([("P3", "too_many_repeats")], 5)


def test_what_is_asked_for_again_on_purpose_is_no_repeat():
    table = [
        ({}, {"visit": "recrawl"}),
        ({"outcome": "failed", "status": None}, {"visit": "retry"}),
        ({"outcome": "failed", "status": None}, {}),
        ({"status": 429}, {}),
        ({"status": 503}, {}),
        ({"visit": "robots"}, {"visit": "robots"}),
        ({"visit": "robots"}, {}),
    ]
    for before, after in table:
        found = examine([line(0, url=PAGE, **before), line(2_000, url=PAGE, **after)])
        assert (accused(found), found.repeats) == ([], 0), (before, after)


def test_a_request_that_a_move_cut_short_is_counted_and_allowed():
    for outcome in ("failed:aborted", "failed:late", "failed:guard"):
        lines = [line(0, url=PAGE, outcome=outcome, status=None), second(2_000, url=PAGE)]
        found = examine(lines, [moved(20, 1_000)])
        assert (accused(found), found.repeats) == ([], 1), outcome


def test_violations_of_many_sites_are_counted_beyond_those_listed():
    count = audit.VIOLATIONS_MAX + 7
    lines = [line(start, site=f"s{number}.test") for number in range(count) for start in (0, 10)]
    found = examine(lines)
    assert (len(found.violations), found.violations_total, found.sites) == (
        audit.VIOLATIONS_MAX,
        count,
        count,
    )


# --- properties ---

POLITE = st.lists(
    st.tuples(
        st.integers(0, 2),  # site
        st.integers(1, 5_000),  # delay
        st.integers(0, 3_000),  # waited beyond the delay and the clock errors
        st.booleans(),  # a move before this request
        st.integers(-40, 40),  # clock error
    ),
    min_size=2,
    max_size=40,
)


def polite(draws: list[tuple[int, int, int, bool, int]]) -> list[records.CrawlLine]:
    """A log that keeps every promise, each site moving now and then."""
    last: dict[int, records.CrawlLine] = {}
    lines = []
    for number, (site, delay_ms, extra_ms, moves, error_ms) in enumerate(draws):
        before = last.get(site)
        tenure = before.tenure if before else 1
        tenure += 1 if moves and before else 0
        start_ms = (before.start_ms - BASE_MS if before else 0) + delay_ms + extra_ms
        if before and tenure != before.tenure:
            start_ms += abs(error_ms) + abs(before.clock_error_ms)
        last[site] = line(
            start_ms,
            site=f"s{site}.test",
            url=f"http://s{site}.test/{number}",
            node=f"n{tenure % 3}",
            tenure=tenure,
            delay_ms=delay_ms,
            clock_error_ms=error_ms,
        )
        lines.append(last[site])
    return lines


@settings(max_examples=150, deadline=None)
@given(POLITE)
def test_a_polite_schedule_passes_whole(draws):
    found = examine(polite(draws))
    assert (found.violations, found.unjudged, found.repeats) == ((), 0, 0)
    assert found.smallest_gap_ratio is None or found.smallest_gap_ratio >= 1


@settings(max_examples=150, deadline=None)
@given(POLITE, st.data())
def test_any_one_gap_that_is_shortened_is_found(draws, data):
    lines = polite(draws)
    second_ones = [
        (before, line)
        for number, line in enumerate(lines)
        for before in [next((one for one in lines[number - 1 :: -1] if number and one.site == line.site), None)]
        if before is not None
    ]
    if not second_ones:
        return
    before, late = data.draw(st.sampled_from(second_ones))
    margin_ms = 0 if before.tenure == late.tenure else abs(before.clock_error_ms) + abs(late.clock_error_ms)
    wanted_ms = late.start_ms - before.start_ms + margin_ms + data.draw(st.integers(1, 1_000))
    lines[lines.index(late)] = type(late)(
        **({name: getattr(late, name) for name in late.__struct_fields__} | {"delay_ms": wanted_ms})
    )
    found = examine(lines)
    assert [(one.reason, one.url) for one in found.violations] == [("gap_too_short", late.url)]
