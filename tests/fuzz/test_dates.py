"""Retry-After in any form: seconds that are a number, or nothing; dates of all three forms mean what they say."""

import datetime as dt
import math

from hypothesis import strategies as st

from node import politeness
from shared import config, records
from tests.fuzz import budget

WORDS = [
    *("Mon", "Sunday", "Jan", "31", "99", "2026", "26", "0000", "10000", "00:00:00", "24:61:61", "GMT", "UTC", "+9999"),
    *(
        "-0000",
        "+99999999",
        "EST",
        ",",
        ", ",
        " ",
        "-",
        ":",
        "\t",
        "1e9",
        "９",
        "Thu, 01 Jan 1970",
        "99999999999999999999",
        "(",
        ")",
    ),
]
values = st.text(max_size=50) | st.lists(st.sampled_from(WORDS), max_size=10).map(" ".join)
now = st.integers(0, 4 * 10**12)
POLITE = config.Politeness()
FORMS = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")


@budget.tried(values, now, share=4)
def test_any_value_asks_for_a_wait_or_for_nothing(value, now_ms):
    wait_s = politeness.retry_after_s(value, now_ms=now_ms)
    assert wait_s is None or (math.isfinite(wait_s) and wait_s >= 0)


@budget.tried(st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2050, 1, 1)), st.sampled_from(FORMS), now)
def test_a_date_asks_for_the_time_until_it(when, shape, now_ms):
    when = when.replace(microsecond=0, tzinfo=dt.UTC)
    wait_s = politeness.retry_after_s(when.strftime(shape), now_ms=now_ms)
    due_s = when.timestamp() - now_ms / 1000
    assert wait_s == (due_s if due_s >= 0 else None)


@budget.tried(
    values, st.sampled_from([200, 304, 429, 500, 503, 999]), st.integers(0, 10**6), now, st.floats(0, 1e9), share=2
)
def test_every_answer_has_a_pace_within_bounds(value, status, backoff, now_ms, duration_s):
    pace = politeness.after(
        records.Fetched(status=status, headers=(("Retry-After", value),), body=b""),
        settings=POLITE,
        crawl_delay_s=None,
        duration_s=duration_s,
        backoff=backoff,
        now_ms=now_ms,
        jitter01=0.5,
    )
    assert POLITE.delay_min_s <= pace.delay_s <= POLITE.delay_cap_s
    assert pace.delay_s <= pace.due_in_s <= POLITE.backoff_cap_s
    assert pace.due_term in {"minimum", "duration", "retry_after", "backoff"}
