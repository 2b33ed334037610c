"""When a page is wanted again: the index, the site's price, slots, and the bounds that no page's wait leaves."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node import rates, recrawl
from shared import config, records

DAY_S = 86_400.0
SETTINGS = config.Recrawl()


def page(*intervals: tuple[float, bool], at_ms: int = 1) -> records.PageRecord:
    found: rates.History = ()
    for days, changed in intervals:
        found = rates.seen(found, waited_s=days * DAY_S, changed=changed)
    return records.PageRecord(intervals=found, last_check_ms=at_ms)


@pytest.mark.parametrize("rate", [0.0005, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("days", [0.0001, 0.1, 1.0, 60.0])
def test_the_index_is_the_closed_form_of_the_freshness_a_visit_gains(rate: float, days: float) -> None:
    expected = 3.0 / rate * (1 - math.exp(-rate * days) * (1 + rate * days))
    assert recrawl.index(rate, days * DAY_S, 3.0) == pytest.approx(expected, rel=1e-4, abs=1e-12)


@given(st.floats(0.0005, 7), st.floats(1e-3, 1e3), st.floats(1e-6, 0.999))
def test_a_page_reaches_its_price_when_its_index_is_there(rate: float, worth: float, part: float) -> None:
    price = worth / rate * part
    reached_s = recrawl.reaches_s(((1.0, rate),), price, worth)
    assert recrawl.index(rate, reached_s, worth) == pytest.approx(price, rel=1e-4)
    assert recrawl.reaches_s(((1.0, rate),), worth / rate * 1.01, worth) == math.inf


mixtures = st.lists(st.tuples(st.floats(1e-4, 1), st.floats(0.0005, 8)), min_size=1, max_size=8)


@given(mixtures, st.floats(1e-6, 0.999))
@example([(0.99, 8.0), (0.01, 0.0005)], 0.0063)
def test_a_page_of_which_little_is_known_reaches_its_price_too(parts: list[tuple[float, float]], part: float) -> None:
    """Where a fast rate is used up and a slow one not yet, the index hardly rises for a while."""
    likely = tuple((share / sum(one for one, _ in parts), rate) for share, rate in parts)
    price = part * sum(share / rate for share, rate in likely)
    reached_s = recrawl.reaches_s(likely, price, 1.0)
    assert sum(share * recrawl.index(rate, reached_s, 1.0) for share, rate in likely) == pytest.approx(price, rel=1e-3)


histories = st.lists(st.tuples(st.floats(0.01, 60), st.booleans()), max_size=40)


@given(histories, st.floats(0, 1e6), st.floats(0.006, 6), st.floats(0, 1e7), st.integers(1, 2**42))
def test_no_wait_is_below_the_minimum_or_at_the_ceiling(steps, price, worth, pass_s, at_ms) -> None:
    found = recrawl.wanted_s(page(*steps, at_ms=at_ms), price=price, importance=worth, settings=SETTINGS, pass_s=pass_s)
    assert found is not None
    assert SETTINGS.interval_min_s <= found < SETTINGS.interval_max_s


@given(histories, st.floats(1e-4, 1), st.floats(1, 4))
def test_what_is_worth_more_is_wanted_no_later(steps, price, more) -> None:
    def wanted(worth: float) -> float:
        found = recrawl.wanted_s(page(*steps), price=price, importance=worth, settings=SETTINGS, pass_s=DAY_S)
        assert found is not None
        return found

    assert wanted(more) <= wanted(1.0) * (1 + 1e-5)


def test_at_no_price_all_wait_alike_so_that_the_longest_unseen_comes_first() -> None:
    pages = [page(), page((1.0, True)), page((9.0, False))]
    found = {recrawl.wanted_s(one, price=0, importance=1.0, settings=SETTINGS, pass_s=DAY_S) for one in pages}
    assert found == {SETTINGS.interval_start_s}


def test_a_page_that_was_never_answered_is_not_wanted_again() -> None:
    unseen = records.PageRecord(attempts=4)
    assert recrawl.wanted_s(unseen, price=1.0, importance=1.0, settings=SETTINGS, pass_s=DAY_S) is None


def test_a_price_follows_the_index_at_visits_and_one_visit_moves_it_little() -> None:
    price = recrawl.price_after(0.0, index_now=0.4, page_records=100)
    assert price == 0.4
    assert 0.4 < recrawl.price_after(price, index_now=1e9, page_records=100) < 0.44
    assert 0.36 < recrawl.price_after(price, index_now=0.0, page_records=100) < 0.4
    for _ in range(1_000):
        price = recrawl.price_after(price, index_now=0.05, page_records=100)
    assert price == pytest.approx(0.05, rel=0.01)


@given(st.floats(0, 1e7), st.floats(0, 1e12), st.integers(0, 10**7))
def test_a_price_stays_a_number_that_the_store_keeps(price: float, index_now: float, page_records: int) -> None:
    after = recrawl.price_after(price, index_now=index_now, page_records=page_records)
    assert recrawl.PRICE_MIN <= after <= recrawl.PRICE_MAX


def price_of(before: records.PageRecord | None, waited_s: float, *, price: float) -> float:
    now_ms = (before.last_check_ms if before else 0) + round(waited_s * 1000)
    return recrawl.price_of_visit(
        price, before, now_ms=now_ms, importance=1.0, page_records=50, settings=SETTINGS, pass_s=5 * DAY_S
    )


def test_visits_that_tell_nothing_of_the_price_leave_it() -> None:
    fast, slow = page(*[(0.2, True)] * 30), page(*[(20.0, False)] * 9)
    assert price_of(None, 5.0, price=0.5) == 0.5, "a first visit"
    assert price_of(records.PageRecord(), 5.0, price=0.5) == 0.5
    assert price_of(fast, -5.0, price=0.5) == 0.5, "the clock stepped back"
    assert price_of(fast, 20 * DAY_S, price=0.5) == 0.5, "it came for the longest interval's sake"
    assert price_of(fast, 4_000.0, price=1e-5) == 1e-5, "it came as soon as it may"
    assert price_of(fast, 3 * DAY_S, price=0.5) < 0.5
    assert price_of(slow, 28 * DAY_S, price=0.5) > 0.5
    assert price_of(fast, DAY_S, price=0.0) > 0


def test_slots_come_at_the_budget_and_never_faster_than_the_delay() -> None:
    assert recrawl.slot_gap_s(100, 1.0, SETTINGS) == 864.0
    assert recrawl.slot_gap_s(200_000, 5.0, SETTINGS) == 5.0
    assert recrawl.slot_gap_s(0, 1.0, SETTINGS) == DAY_S


def test_importance_rises_with_priority_and_falls_with_depth() -> None:
    assert recrawl.importance(5, 0) == 1.0
    assert recrawl.importance(9, 0) > recrawl.importance(5, 0) > recrawl.importance(5, 1) > recrawl.importance(0, 3) > 0
    assert recrawl.importance(5, 9_999) == recrawl.importance(5, 30)


@pytest.mark.parametrize(("round_days", "longest_days"), [(1.0, 4.0), (4.0, 16.0), (12.0, 18.0), (90.0, 15.0)])
def test_a_page_that_never_reaches_its_price_has_room_below_the_ceiling_for_a_round(
    round_days: float, longest_days: float
) -> None:
    """Four rounds at most; of the 30 days, as much is left as one round takes, half at most."""
    found = [
        recrawl.wanted_s(
            page((1.0, True), at_ms=at_ms), price=1e6, importance=1.0, settings=SETTINGS, pass_s=round_days * DAY_S
        )
        for at_ms in range(1, 200)
    ]
    assert all(each is not None and each <= longest_days * DAY_S * (1 + 1e-9) for each in found)
    assert max(each or 0.0 for each in found) > 0.98 * longest_days * DAY_S
    assert round_days < 5 or len(set(found)) == 199, "not all at one moment"
