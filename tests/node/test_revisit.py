"""What a visit teaches about a page, what becomes of its URL, and when to look again."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import revisit
from shared import records

DAY_MS = 86_400_000
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
    page = visits((answered(), 1), (answered(), 1), (answered(), 2), (records.NotModified(), None))
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
        (records.Failed(reason="timeout"), 4, revisit.SetAside("timeout")),
        (answered(500), 2, revisit.Later(120.0)),
        (answered(500), 4, revisit.SetAside("status_500")),
        (answered(503), 4, revisit.Later(480.0)),
        (answered(429), 11, revisit.Later(61_440.0)),
        (answered(503), 12, revisit.SetAside("status_503")),
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


def page(checks: int, changes: int, observed_days: float) -> records.PageRecord:
    return records.PageRecord(checks=checks, changes=changes, observed_s=observed_days * 86_400, last_check_ms=1)


@pytest.mark.parametrize(
    ("record", "days"),
    [
        (page(0, 0, 0), 1.0),
        (page(1, 0, 1), 1.0),
        (page(2, 0, 2), 2.0),
        (page(5, 0, 200), 30.0),
        (page(10, 5, 10), 1 / -math.log(5.5 / 10.5)),
        (page(50, 50, 50), 1 / -math.log(0.5 / 50.5)),
        (page(9, 9, 0.001), 1 / 24),
    ],
)
def test_the_interval_is_the_mean_time_between_changes_within_bounds(record: records.PageRecord, days: float) -> None:
    found = revisit.interval_s(record, minimum=3_600.0, maximum=30 * 86_400.0, start=86_400.0)
    assert found == pytest.approx(days * 86_400)


@given(st.integers(0, 1000), st.integers(0, 1000), st.just(0.0) | st.floats(0.001, 1e9))
def test_the_interval_stays_within_its_bounds(checks: int, changes: int, observed_s: float) -> None:
    record = records.PageRecord(checks=checks, changes=min(checks, changes), observed_s=observed_s)
    assert 10.0 <= revisit.interval_s(record, minimum=10.0, maximum=1000.0, start=100.0) <= 1000.0


def test_the_estimator_finds_a_known_rate() -> None:
    """Fifty daily visits to pages that change once a day: the mean estimate is the rate, where X / n gives 0.63."""
    source = random.Random(7)
    estimates = []
    for _ in range(400):
        changes = sum(source.random() < 1 - math.exp(-1) for _ in range(50))
        estimates.append(records.change_rate(50, changes, 50 * 86_400.0))
    assert sum(estimates) / len(estimates) == pytest.approx(1.0, abs=0.03)
