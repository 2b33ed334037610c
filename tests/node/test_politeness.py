"""The pace of a site: never below its delay, longer when the site asks, and forgotten after a good answer."""

import calendar
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import politeness
from shared import config, records
from tests import corpus

SETTINGS = config.Politeness()
DAY_S = 86_400.0
NOW_MS = 1_700_000_000_000


def answered(status: int, *headers: tuple[str, str], truncated: str | None = None) -> records.Fetched:
    return records.Fetched(status=status, headers=headers, body=b"", truncated=truncated)


def pace(
    outcome: records.Outcome, *, backoff: int = 0, settings: config.Politeness = SETTINGS, **more: float
) -> politeness.Pace:
    numbers = {"crawl_delay_s": None, "duration_s": 0.1, "now_ms": NOW_MS, "jitter01": 0.0} | more
    return politeness.after(outcome, settings=settings, backoff=backoff, **numbers)


@pytest.mark.parametrize(
    ("crawl_delay_s", "duration_s", "expected"),
    [
        (None, 0.1, (2.0, "minimum")),
        (0.5, 0.1, (2.0, "minimum")),
        (2.0, 2.0, (2.0, "minimum")),
        (10.0, 0.1, (10.0, "crawl_delay")),
        (300.0, 0.1, (300.0, "crawl_delay")),
        (3600.0, 0.1, (300.0, "crawl_delay_capped")),
        (None, 7.0, (7.0, "duration")),
        (5.0, 7.0, (7.0, "duration")),
        (9.0, 7.0, (9.0, "crawl_delay")),
        (None, 4000.0, (300.0, "duration")),
        (3600.0, 4000.0, (300.0, "crawl_delay_capped")),
    ],
)
def test_the_delay_is_the_largest_term(
    crawl_delay_s: float | None, duration_s: float, expected: tuple[float, str]
) -> None:
    assert politeness.delay(SETTINGS, crawl_delay_s=crawl_delay_s, duration_s=duration_s) == expected


@pytest.mark.parametrize("reason", ["guard", "aborted", "late"])
def test_the_duration_of_what_we_stopped_ourselves_says_nothing_about_the_site(reason: str) -> None:
    own = pace(records.Failed(reason=reason), duration_s=90.0)
    assert (own.delay_s, own.due_in_s, own.delay_term) == (2.0, 2.0, "minimum")
    assert pace(records.Failed(reason="timeout"), duration_s=90.0).delay_s == 90.0


@pytest.mark.parametrize(
    ("outcome", "before", "due", "term", "level"),
    [
        (answered(200), 3, 2.0, "minimum", 0),
        (answered(404), 3, 2.0, "minimum", 0),
        (records.NotModified(), 3, 2.0, "minimum", 0),
        (records.Redirected(status=301, location="/"), 3, 2.0, "minimum", 0),
        (answered(500), 3, 2.0, "minimum", 3),
        (answered(200, truncated="connection"), 3, 2.0, "minimum", 3),
        (answered(200, truncated="size"), 3, 2.0, "minimum", 0),
        (answered(429), 0, 60.0, "backoff", 1),
        (answered(503), 1, 120.0, "backoff", 2),
        (answered(503), 10, 61_440.0, "backoff", 11),
        (answered(503), 11, DAY_S, "backoff", 12),
        (answered(503), 10_000, DAY_S, "backoff", 32),
        (answered(503, ("Retry-After", "90")), 0, 90.0, "retry_after", 1),
        (answered(503, ("retry-after", "1")), 0, 2.0, "minimum", 1),
        (answered(429, ("Retry-After", "0")), 4, 2.0, "minimum", 5),
        (answered(503, ("Retry-After", "-5")), 0, 60.0, "backoff", 1),
        (answered(503, ("Retry-After", "9999999999")), 0, DAY_S, "retry_after", 1),
        (answered(503, ("Retry-After", "9" * 400)), 0, DAY_S, "retry_after", 1),
        (answered(503, ("Retry-After", "5"), ("Retry-After", "70")), 0, 70.0, "retry_after", 1),
        (answered(200, ("Retry-After", "90")), 0, 2.0, "minimum", 0),
        (records.Failed(reason="connect"), 0, 2.0, "minimum", 1),
        (records.Failed(reason="timeout"), 1, 60.0, "backoff", 2),
        (records.Failed(reason="dns"), 2, 120.0, "backoff", 3),
        (records.Failed(reason="aborted"), 2, 2.0, "minimum", 2),
        (records.Failed(reason="guard"), 2, 2.0, "minimum", 2),
        (records.Refused(reason="robots"), 2, 2.0, "minimum", 2),
    ],
)
def test_an_answer_sets_due_and_level(outcome: records.Outcome, before: int, due: float, term: str, level: int) -> None:
    found = pace(outcome, backoff=before)
    assert (found.due_in_s, found.due_term, found.backoff) == (due, term, level)
    assert (found.delay_s, found.delay_term) == (2.0, "minimum")


def test_every_form_of_retry_after_is_read_and_every_malformed_one_ignored() -> None:
    data = corpus.load("http/dates/retry_after_cases.json")
    now_ms = calendar.timegm(time.strptime(data["now"], "%Y-%m-%dT%H:%M:%SZ")) * 1000
    wrong = []
    for row in data["cases"]:
        found = politeness.retry_after_s(row["value"], now_ms=now_ms)
        wanted = row["expected_seconds"]
        right = found is not None and found > DAY_S if isinstance(wanted, str) else found == wanted
        if not right:
            wrong.append((row["value"], wanted, found))
    assert len(data["cases"]) == 20
    assert wrong == []


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 03 Jun 2019 10:59:59 GMT",
        "Mon, 99 Jun 2019 10:59:59 GMT",
        "Mon, 03 Jun 99999999 10:59:59 GMT",
        "1e3",
        "0x10",
        "1 2",
        "GMT",
    ],
)
def test_a_date_that_is_past_or_none_is_ignored(value: str) -> None:
    assert politeness.retry_after_s(value, now_ms=1_559_559_600_000) is None


@given(st.text(max_size=40) | st.text("0123456789:, JanFebMoTueGT+-", max_size=40))
def test_no_retry_after_value_raises_or_goes_below_zero(value: str) -> None:
    found = politeness.retry_after_s(value, now_ms=NOW_MS)
    assert found is None or found >= 0


OUTCOMES = st.one_of(
    st.builds(
        answered,
        st.integers(100, 599),
        st.tuples(st.just("Retry-After"), st.text(max_size=12) | st.integers(-5, 10**12).map(str)),
        truncated=st.sampled_from([None, "size", "time", "connection", "encoding"]),
    ),
    st.just(records.NotModified()),
    st.builds(records.Failed, reason=st.sampled_from(["dns", "connect", "tls", "timeout", "aborted", "guard"])),
    st.just(records.Refused(reason="robots")),
)


@given(
    outcome=OUTCOMES,
    minimum=st.floats(0.01, 100),
    crawl_delay_s=st.none() | st.floats(0, 1e9),
    duration_s=st.floats(0, 1e6),
    backoff=st.integers(0, 100),
    jitter=st.floats(0, 1),
    jitter01=st.floats(0, 1),
)
def test_never_below_the_minimum_never_due_before_the_delay_and_jitter_only_adds(
    *,
    outcome: records.Outcome,
    minimum: float,
    crawl_delay_s: float | None,
    duration_s: float,
    backoff: int,
    jitter: float,
    jitter01: float,
) -> None:
    settings = config.Politeness(delay_min_s=minimum, jitter=jitter)
    found, plain = (
        pace(
            outcome,
            settings=settings,
            crawl_delay_s=crawl_delay_s,
            duration_s=duration_s,
            backoff=backoff,
            jitter01=part,
        )
        for part in (jitter01, 0.0)
    )
    assert minimum <= found.delay_s <= settings.delay_cap_s
    assert found.due_in_s >= found.delay_s
    assert found.due_in_s >= plain.due_in_s
    assert plain.due_in_s <= settings.backoff_cap_s
    assert found.delay_s == plain.delay_s
    if found.due_term in {found.delay_term, ""}:
        assert plain.due_in_s == plain.delay_s
