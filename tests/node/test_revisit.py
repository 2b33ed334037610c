"""What a visit teaches about a page, what becomes of its URL, and when to look again."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import recrawl, revisit
from shared import config, records

DAY_MS = 86_400_000
NOT_MODIFIED = records.NotModified()
PLAN = {"pause_s": 2.0, "attempts_max": 4, "backoff_min_s": 60.0, "backoff_cap_s": 86_400.0}


def answered(status: int = 200, *, etag: str | None = None, modified: str | None = None, truncated: str | None = None):
    headers = (("ETag", etag), ("Last-Modified", modified))
    return records.Fetched(
        status=status,
        headers=tuple((name, value) for name, value in headers if value is not None),
        body=b"",
        truncated=truncated,
    )


def visits(*steps: tuple[records.Outcome, int | None]) -> records.PageRecord:
    """The record after visits a day apart."""
    page = None
    for number, (outcome, content) in enumerate(steps, 1):
        page = revisit.page_after(page, outcome, content=content, now_ms=number * DAY_MS)
    assert page is not None
    return page


def test_a_first_visit_is_no_check_and_keeps_both_validators() -> None:
    page = visits((answered(etag='"a"', modified="Mon, 03 Jun 2019 11:30:12 GMT"), 7))
    assert page == records.PageRecord(
        etag='"a"', last_modified="Mon, 03 Jun 2019 11:30:12 GMT", content=7, last_check_ms=DAY_MS, status=200
    )


def test_checks_changes_and_time_are_counted() -> None:
    page = visits((answered(etag='"a"'), 1), (answered(etag='"a"'), 1), (answered(etag='"b"'), 2), (NOT_MODIFIED, None))
    assert (page.checks, page.changes, page.observed_s, page.last_check_ms) == (
        3,
        1,
        3 * 86_400.0,
        4 * DAY_MS,
    )


def test_304_keeps_the_validators_the_content_and_the_status() -> None:
    page = visits((answered(etag='"a"'), 1), (records.NotModified(), None))
    assert (page.etag, page.content, page.status, page.checks, page.changes) == ('"a"', 1, 200, 1, 0)


def test_a_validator_that_changes_while_the_content_does_not_is_dropped() -> None:
    page = visits((answered(etag='"a"', modified="m"), 1), (answered(etag='"b"', modified="m"), 1))
    assert (page.etag, page.last_modified, page.changes) == (None, "m", 0)


def test_a_validator_that_changes_with_the_content_is_kept() -> None:
    page = visits((answered(etag='"a"'), 1), (answered(etag='"b"'), 2))
    assert (page.etag, page.changes) == ('"b"', 1)


def test_a_torn_body_counts_as_no_check_and_leaves_no_validators() -> None:
    page = visits((answered(etag='"a"'), 1), (answered(etag='"b"', truncated="connection"), 9))
    assert (page.etag, page.content, page.checks, page.changes) == (None, 1, 0, 0)
    assert visits((answered(etag='"b"', truncated="time"), 9)).etag is None


def test_a_page_that_goes_away_and_comes_back_changed_twice() -> None:
    page = visits((answered(etag='"a"'), 1), (answered(404, etag='"e"'), None), (answered(404), None), (answered(), 1))
    assert (page.checks, page.changes, page.etag, page.status) == (3, 2, None, 200)


@pytest.mark.parametrize("outcome", [records.Failed(reason="timeout"), answered(500), answered(503), answered(429)])
def test_no_answer_counts_attempts_and_an_answer_forgets_them(outcome: records.Outcome) -> None:
    page = visits((answered(etag='"a"'), 1), (outcome, None), (outcome, None))
    assert (page.attempts, page.etag, page.content, page.checks) == (2, '"a"', 1, 0)
    assert revisit.page_after(page, answered(), content=1, now_ms=9 * DAY_MS).attempts == 0
    assert revisit.page_after(page, records.NotModified(), content=None, now_ms=9 * DAY_MS).attempts == 0


@pytest.mark.parametrize(
    "outcome",
    [records.Failed(reason="guard"), records.Failed(reason="aborted"), records.Refused(reason="robots")],
)
def test_what_we_stopped_ourselves_changes_nothing(outcome: records.Outcome) -> None:
    before = visits((answered(etag='"a"'), 1))
    assert revisit.page_after(before, outcome, content=None, now_ms=2 * DAY_MS) == before


def test_a_validator_that_no_request_could_carry_is_not_kept() -> None:
    page = visits((answered(etag='"' + "x" * 600 + '"', modified="a\x00b"), 1))
    assert (page.etag, page.last_modified) == (None, None)


@pytest.mark.parametrize(
    ("outcome", "attempts", "expected"),
    [
        (answered(200), 0, revisit.Done(5.0)),
        (answered(404), 0, revisit.Done(5.0)),
        (answered(200, truncated="time"), 0, revisit.Done(5.0)),
        (records.NotModified(), 0, revisit.Done(5.0)),
        (records.Redirected(status=302, location="/"), 0, revisit.Done(5.0)),
        (records.Failed(reason="timeout"), 1, revisit.Later(60.0)),
        (records.Failed(reason="timeout"), 3, revisit.Later(240.0)),
        (records.Failed(reason="timeout"), 4, revisit.Done(5.0)),
        (records.Failed(reason="timeout"), 7, revisit.SetAside("timeout")),
        (answered(500), 2, revisit.Later(120.0)),
        (answered(500), 7, revisit.SetAside("status_500")),
        (answered(503), 4, revisit.Later(480.0)),
        (answered(429), 11, revisit.Later(61_440.0)),
        (answered(503), 15, revisit.SetAside("status_503")),
        (records.Failed(reason="guard"), 9, revisit.Keep()),
        (records.Failed(reason="aborted"), 9, revisit.Keep()),
        (records.Refused(reason="robots"), 0, revisit.SetAside("robots")),
        (records.Refused(reason="private_address"), 0, revisit.SetAside("private_address")),
        (records.Refused(reason="robots_unreachable"), 0, revisit.Later(60.0)),
    ],
)
def test_every_outcome_has_its_plan(outcome: records.Outcome, attempts: int, expected: revisit.Plan) -> None:
    assert revisit.plan(outcome, attempts=attempts, again_s=5.0, **PLAN) == expected


@given(st.integers(0, 10_000), st.floats(0, 1e6))
def test_a_pause_the_site_asked_for_is_never_shortened(attempts: int, pause_s: float) -> None:
    for outcome in (answered(503), answered(500), records.Failed(reason="dns")):
        found = revisit.plan(outcome, attempts=attempts, **PLAN | {"pause_s": pause_s})
        assert isinstance(found, revisit.SetAside) or found == revisit.Later(max(pause_s, found.seconds))


@pytest.mark.parametrize("outcome", [records.Failed(reason="timeout"), answered(500)])
def test_a_page_that_was_never_there_is_given_up_after_attempts_max(outcome: records.Outcome) -> None:
    assert isinstance(revisit.plan(outcome, attempts=3, **PLAN), revisit.Later)
    assert isinstance(revisit.plan(outcome, attempts=4, **PLAN), revisit.SetAside)


def test_a_304_without_validators_keeps_those_that_were_asked_with_byte_for_byte() -> None:
    page = visits((answered(etag='W/"0x8D7"', modified="Mon,  3 jun 2019 11:30:12 GMT"), 1), (NOT_MODIFIED, None))
    assert revisit.conditions(page) == ('W/"0x8D7"', "Mon,  3 jun 2019 11:30:12 GMT")


def test_validators_that_flap_three_times_are_never_believed_again() -> None:
    steps = [(answered(etag=f'"{number}"'), 1) for number in range(5)]
    page = visits(*steps)  # every second answer is one to a condition: a validator that flapped is not sent again
    assert (page.doubts, page.changes, page.status) == (2, 0, 200)
    page = visits(*steps, (answered(etag='"x"'), 1))
    assert (page.doubts, page.etag, revisit.conditions(page)) == (3, None, (None, None))
    for answer in (answered(etag='"y"', modified="m"), answered(etag='"y"', modified="m")):
        page = revisit.page_after(page, answer, content=1, now_ms=9 * DAY_MS)
        assert revisit.conditions(page) == (None, None)
    before = page.checks
    page = revisit.page_after(page, NOT_MODIFIED, content=None, now_ms=12 * DAY_MS)
    assert (page.checks, page.status) == (before, 304), "a 304 that nothing was asked for tells nothing"


def test_a_change_that_a_condition_told_of_speaks_for_the_validators() -> None:
    flap = ((answered(etag='"a"'), 1), (answered(etag='"b"'), 1), (answered(etag='"c"'), 1))
    assert visits(*flap).doubts == 1
    assert visits(*flap, (answered(etag='"d"'), 2)).doubts == 0


def test_a_validator_that_lies_is_found_out_by_asking_in_full_after_20_answers() -> None:
    page = visits((answered(etag='"a"'), 1))
    for hour in range(20):
        assert revisit.conditions(page) == ('"a"', None)
        page = revisit.page_after(page, NOT_MODIFIED, content=None, now_ms=DAY_MS + (hour + 1) * 3_600_000)
    assert revisit.conditions(page) == (None, None)
    honest = revisit.page_after(page, answered(etag='"a"'), content=1, now_ms=3 * DAY_MS)
    assert (honest.unproved, honest.doubts, revisit.conditions(honest)) == (0, 0, ('"a"', None))
    lied = revisit.page_after(page, answered(etag='"a"'), content=2, now_ms=3 * DAY_MS)
    assert (lied.changes, lied.etag, lied.doubts) == (1, None, revisit.DOUBTS_MAX)
    moved = revisit.page_after(page, answered(etag='"b"'), content=2, now_ms=3 * DAY_MS)
    assert (moved.changes, moved.etag, moved.doubts) == (1, None, 1), "it may have changed just now"


def test_a_slow_page_is_asked_in_full_after_a_month_of_304s() -> None:
    page = records.PageRecord(etag='"a"', content=1, last_check_ms=DAY_MS)
    page = revisit.page_after(page, NOT_MODIFIED, content=None, now_ms=21 * DAY_MS)
    assert revisit.conditions(page) == ('"a"', None)
    page = revisit.page_after(page, NOT_MODIFIED, content=None, now_ms=41 * DAY_MS)
    assert revisit.conditions(page) == (None, None)


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_is_gone_for_the_third_time_is_not_wanted_again(status: int) -> None:
    settings = config.Recrawl()
    page = None
    for number in range(1, 4):
        page = revisit.page_after(page, answered(status), content=None, now_ms=number * DAY_MS)
        again_s = recrawl.wanted_s(page, price=0.1, importance=1.0, settings=settings, pass_s=86_400.0)
        assert (again_s is None) == (number == 3)
    back = revisit.page_after(page, answered(200), content=1, now_ms=9 * DAY_MS)
    assert back.gone == 0 and recrawl.wanted_s(back, price=0.1, importance=1.0, settings=settings, pass_s=1.0)


def test_a_record_from_before_intervals_reads_and_goes_on() -> None:
    old = msgspec.msgpack.encode([None, None, 7, 10, 5, 864_000.0, DAY_MS, 200, 0])
    page = msgspec.msgpack.decode(old, type=records.PageRecord)
    assert (page.intervals, page.doubts, page.gone) == ((), 0, 0)
    rate, low, high = recrawl.rate_of(page)
    assert rate == pytest.approx(0.7, abs=0.1)
    assert low < rate < high
    after = revisit.page_after(page, answered(), content=7, now_ms=2 * DAY_MS)
    assert after.checks == 11 and sum(after.intervals[::2]) == 11 * 16
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(after), type=records.PageRecord) == after


outcomes = st.sampled_from([answered(), answered(etag='"a"'), answered(etag='"b"', modified="m"), answered(404)]) | (
    st.sampled_from(
        [NOT_MODIFIED, records.Failed(reason="dns"), answered(503), records.Redirected(status=301, location="/")]
    )
)


@given(st.lists(st.tuples(outcomes, st.integers(0, 2), st.integers(-DAY_MS, 400 * DAY_MS)), max_size=80))
def test_whatever_comes_the_record_stays_one_that_can_be_read_and_is_small(steps) -> None:
    page, now_ms = None, DAY_MS
    for outcome, content, waited_ms in steps:
        now_ms = max(now_ms + waited_ms, 1)
        body = content if isinstance(outcome, records.Fetched) and outcome.status == 200 else None
        page = revisit.page_after(page, outcome, content=body, now_ms=now_ms)
        packed = msgspec.msgpack.encode(page)
        assert msgspec.msgpack.decode(packed, type=records.PageRecord) == page and len(packed) < 300
        assert page.checks >= page.changes
        assert not page.doubts >= revisit.DOUBTS_MAX or page.etag is None
