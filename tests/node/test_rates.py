"""How often a page changes: the most likely rate, what else it may be, and that its history stays short."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import rates

DAY_S = 86_400.0


def history(*intervals: tuple[float, bool]) -> rates.History:
    """After (days, changed)."""
    found: rates.History = ()
    for days, changed in intervals:
        found = rates.seen(found, waited_s=days * DAY_S, changed=changed)
    return found


def by_bisection(intervals: list[tuple[float, bool]]) -> float:
    """The equation of the whole list with the two imaginary intervals, as the paper has it."""
    known = [*intervals, (0.5, True), (0.5, False)]

    def surplus(rate: float) -> float:
        changed = sum(t / math.expm1(rate * t) for t, changed in known if changed and rate * t < 700)
        return changed - sum(t for t, changed in known if not changed)

    low, high = rates.RATE_MIN, rates.RATE_MAX
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if surplus(middle) > 0 else (low, middle)
    return low


def drawn(source: random.Random, rate: float, waits: list[float]) -> list[tuple[float, bool]]:
    return [(days, source.random() < -math.expm1(-rate * days)) for days in waits]


def test_without_visits_the_imaginary_two_give_a_change_in_17_hours() -> None:
    assert rates.rate(()) == pytest.approx(math.log(2) / 0.5)


@pytest.mark.parametrize("days", [0.01, 1.0, 13.0])
def test_at_even_intervals_the_estimate_solves_the_equation_exactly(days: float) -> None:
    for changes in range(0, 30, 3):
        steps = [(days, number < changes) for number in range(30)]
        assert rates.rate(history(*steps)) == pytest.approx(by_bisection(steps), rel=1e-3)


@given(st.lists(st.tuples(st.floats(0.01, 300), st.booleans()), max_size=60))
def test_at_any_intervals_it_is_near_that_of_the_whole_list(steps: list[tuple[float, bool]]) -> None:
    assert rates.rate(history(*steps)) == pytest.approx(by_bisection(steps), rel=0.2, abs=1e-4)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.booleans()), max_size=300))
def test_any_history_is_short_and_its_rate_within_bounds(steps: list[tuple[float, bool]]) -> None:
    found = history(*steps)
    assert len(found) <= 96 and all(0 <= number <= 10**12 for number in found)
    low, high = rates.confidence(found)
    assert rates.RATE_MIN <= low <= rates.rate(found) <= high <= rates.RATE_MAX
    likely = rates.likely(found)
    assert sum(share for share, _ in likely) == pytest.approx(1) and all(rate > 0 for _, rate in likely)


@given(st.lists(st.integers(0, 10**12), max_size=96))
def test_numbers_that_are_no_history_of_ours_do_no_harm(numbers: list[int]) -> None:
    after = rates.seen(tuple(numbers), waited_s=5.0, changed=True)
    assert rates.RATE_MIN <= rates.rate(after) <= rates.RATE_MAX
    rates.likely(after)


@pytest.mark.parametrize("rate", [0.02, 0.2, 1.0, 3.0])
def test_irregular_visits_find_the_rate_and_the_interval_holds_it_19_times_of_20(rate: float) -> None:
    source = random.Random(3)
    found, exact, held = 0.0, 0.0, 0
    for _ in range(300):
        waits = [source.uniform(0.2, 3) / rate for _ in range(40)]
        steps = drawn(source, rate, waits)
        known = history(*steps)
        low, high = rates.confidence(known)
        found += rates.rate(known) / 300
        exact += by_bisection(steps) / 300
        held += low <= rate <= high
    assert found == pytest.approx(exact, rel=0.03)
    assert found == pytest.approx(rate, rel=0.1), "40 visits, and one imaginary change more"
    assert 0.91 <= held / 300 <= 0.99


def test_a_page_that_turns_busy_after_a_quiet_year_is_found_out() -> None:
    quiet = history(*[(5.0, False)] * 73)
    assert rates.rate(quiet) < 0.01
    busy = quiet
    for _ in range(100):
        busy = rates.seen(busy, waited_s=DAY_S, changed=True)
    assert rates.rate(busy) > 0.5


def test_one_change_in_a_long_time_leaves_open_how_many_there_were() -> None:
    likely = rates.likely(history((20.0, True)))
    assert sum(share for share, rate in likely if rate < 0.3) > 0.2
    sure = rates.likely(history(*[(1.0, number % 2 == 0) for number in range(60)]))
    assert all(0.3 < rate < 1.6 for share, rate in sure if share > 0.05)


@given(st.lists(st.tuples(st.floats(0.01, 60), st.booleans()), max_size=60))
def test_what_is_likely_is_bayes_rule_over_the_visits(steps: list[tuple[float, bool]]) -> None:
    """Against the product of the chances, at every rate of the grid that has a share worth naming."""
    known = history(*steps)
    same_s, changed = known[1] if known else 0, list(zip(known[2::2], known[3::2], strict=True))

    def chance(rate: float) -> float:
        log = -((math.log(rate * 20) / 2) ** 2) / 2 - rate * same_s / DAY_S
        return log + sum(n / 16 * math.log(-math.expm1(-rate * s * 16 / n / DAY_S)) for n, s in changed)

    likely = rates.likely(known)
    top, best = max(likely)
    for share, rate in likely:
        assert math.log(share / top) == pytest.approx(chance(rate) - chance(best), abs=1e-6)
    assert all(rates.RATE_MIN <= rate < 8.2 for _, rate in likely)


def test_a_page_that_nothing_is_known_of_changes_as_pages_do_as_a_rule() -> None:
    """Half of them less often than once in 20 days, near enough; and no rate is ruled out."""
    likely = rates.likely(())
    assert sum(share for share, rate in likely if rate < 1 / 20) == pytest.approx(0.5, abs=0.1)
    assert min(rate for _, rate in likely) < 0.002 and max(rate for _, rate in likely) > 4
