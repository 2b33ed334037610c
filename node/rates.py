"""How often a page changes, by maximum likelihood from visits at irregular intervals, and how sure that is; pure.

Changes are taken for a Poisson process. A visit after t days tells only whether there was any change: with rate l a day
that has probability 1 - e^(-l t). The most likely rate solves

    sum over changed of t / (e^(l t) - 1)  =  sum of the unchanged t

(Cho and Garcia-Molina, "Estimating frequency of change", TOIT 3(3), 2003, section 5). Of the unchanged intervals only
their sum matters; the changed ones are kept as sums by powers of two of their length, whose means stand for them: the
estimate differs from that of the whole list by a few per cent at worst. Two imaginary intervals of half a day, one of
each kind, are where a page starts (Kolobov et al., "Staying up to date with online content changes using reinforcement
learning for scheduling", NeurIPS 2019): no first visit runs off to never or always.

`rate` is that number, for people. Recrawls rest on `likely`: the whole of what the rate may be, and it starts from how
often pages change as a rule instead of from imaginary visits.
"""

import math
from collections.abc import Iterable
from typing import Final

History = tuple[int, ...]
"""(weight, seconds) of the unchanged intervals, then of each length of changed ones, the shorter first; weights in
sixteenths of an interval, seconds weighted likewise. () = no interval yet."""

RATE_MIN: Final = 0.0005  # a day: once in 5.5 years
RATE_MAX: Final = 7.0  # a day
_DAY_S: Final = 86_400.0
_ONE: Final = 16  # an interval's weight when it is new
_WEIGHT_MAX: Final = 64 * _ONE  # then all weights are halved: a page that turns quiet or busy is found out in time
_SECONDS_MAX: Final = 10**10  # 300 years; keeps a record that holds nonsense from growing
_START_DAYS: Final = 0.5
# What is thought of a page before it was visited twice: log-normal about a change in 20 days, two in three pages within
# e^2 times as many or as few. Half of the web's pages were seen to change within 50 days, a fifth daily (Cho and
# Garcia-Molina, "The evolution of the web and implications for an incremental crawler", VLDB 2000).
_USUAL: Final = 1 / 20
_USUAL_SPREAD: Final = 2.0
_NEGLIGIBLE: Final = 7.0  # a rate e^7 times less likely than the best one is left out
_LIKELY: Final = 3.841 / 2  # a likelihood ratio test's bound at 95 %: half the quantile of chi-square with 1 degree
_STEPS_MAX: Final = 40
_RATES: Final = tuple(RATE_MIN * 2**step for step in range(15))  # to 8.2 a day
_BEFORE: Final = tuple((-((math.log(per_day / _USUAL) / _USUAL_SPREAD) ** 2) / 2, per_day) for per_day in _RATES)


def seen(history: History, *, waited_s: float, changed: bool) -> History:
    """The history after one more interval; one of less than a second tells nothing."""
    seconds = min(int(waited_s), _SECONDS_MAX)
    if seconds < 1:
        return history
    same_n, same_s, *rest = history if len(history) > 1 else (0, 0)
    if changed:
        rest = _with(rest, seconds)
    else:
        same_n, same_s = same_n + _ONE, same_s + seconds
    if same_n + sum(rest[::2]) <= _WEIGHT_MAX:
        return (same_n, min(same_s, _SECONDS_MAX), *rest)
    halves = [half for n, s in _pairs(rest) if n >= 2 for half in (n // 2, s // 2)]
    return (same_n // 2, same_s // 2, *halves)


def of_totals(checks: int, changes: int, observed_s: float) -> History:
    """A history for a record from before there was one: all intervals as long as their mean."""
    if checks <= 0 or observed_s < checks:
        return ()
    kept = min(checks, _WEIGHT_MAX // _ONE // 2)
    mean_s = min(observed_s / checks, _SECONDS_MAX / kept)
    changed = kept * min(changes, checks) / checks
    same = (round((kept - changed) * _ONE), int((kept - changed) * mean_s))
    return same if round(changed * _ONE) < 1 else (*same, round(changed * _ONE), int(changed * mean_s))


def rate(history: History) -> float:
    """The most likely number of changes a day, within RATE_MIN and RATE_MAX."""
    return _best(*_days(history))


def likely(history: History) -> tuple[tuple[float, float], ...]:
    """(share, changes a day): what the rate may be after these visits, the shares adding up to 1.

    Bayes' rule over rates each twice the one before. One change in 20 days may be one of many or the only one: whoever
    counts on the best rate alone takes such a page for one that changes all the time, and never learns better.
    """
    same_days = history[1] / _DAY_S if len(history) > 1 else 0.0
    points = [before - per_day * same_days for before, per_day in _BEFORE]
    for n, s in _pairs(history[2:]):
        if n > 0 and s > 0:
            changed = -math.expm1(-RATE_MIN * s * _ONE / n / _DAY_S)  # the chance that it changes within this time
            for place in range(len(points)):
                if changed == 1.0:
                    break
                points[place] += math.log(changed) * n / _ONE
                changed *= 2.0 - changed  # at twice the rate
    top = max(points) - _NEGLIGIBLE
    found = [
        (math.exp(point - top), per_day) for point, (_, per_day) in zip(points, _BEFORE, strict=True) if point > top
    ]
    total = sum(share for share, _ in found)
    return tuple([(share / total, per_day) for share, per_day in found])


def confidence(history: History) -> tuple[float, float]:
    """The rates a day that the visits do not speak against at 95 %: an interval by likelihood ratio, around `rate`.

    All rates whose log likelihood is at most 1.92 below the best one's; unlike best +- 1.96 standard errors it never
    goes below nothing, and it holds for few visits.
    """
    same_days, changed = _days(history)
    best = _best(same_days, changed)
    bound = _likelihood(best, same_days, changed) - _LIKELY

    def edge(inside: float, outside: float) -> float:
        if _likelihood(outside, same_days, changed) >= bound:
            return outside
        for _ in range(_STEPS_MAX):
            middle = math.sqrt(inside * outside)
            if _likelihood(middle, same_days, changed) >= bound:
                inside = middle
            else:
                outside = middle
        return inside

    return edge(best, RATE_MIN), edge(best, RATE_MAX)


def _best(same_days: float, changed: list[tuple[float, float]]) -> float:
    if _slope(RATE_MIN, same_days, changed) <= 0:
        return RATE_MIN
    if _slope(RATE_MAX, same_days, changed) >= 0:
        return RATE_MAX
    # Newton: the slope falls and is convex, so from below the root every step ends below it, and nearer.
    low = RATE_MIN
    weight = sum(n for n, _ in changed)
    found = max(RATE_MIN, weight / (same_days + sum(n * t for n, t in changed)) * 0.5)
    for _ in range(_STEPS_MAX):
        slope, bend = _slope(found, same_days, changed), _bend(found, changed)
        if slope > 0:
            low = found
        step = -slope / bend
        found = max(found + step, (low + found) / 2) if slope < 0 else min(found + step, RATE_MAX)
        if abs(step) <= 1e-7 * found:
            break
    return min(max(found, RATE_MIN), RATE_MAX)


def _with(changed: list[int], seconds: int) -> list[int]:
    """One more changed interval, added to those of its power of two."""
    pairs = _pairs(changed)
    for place, (n, s) in enumerate(pairs):
        mean = s * _ONE // max(n, 1)
        if mean.bit_length() == seconds.bit_length():
            pairs[place] = (n + _ONE, min(s + seconds, _SECONDS_MAX))
            break
        if mean > seconds:
            pairs.insert(place, (_ONE, seconds))
            break
    else:
        pairs.append((_ONE, seconds))
    return [number for pair in pairs for number in pair]


def _pairs(flat: Iterable[int]) -> list[tuple[int, int]]:
    numbers = iter(flat)
    return list(zip(numbers, numbers, strict=False))


def _days(history: History) -> tuple[float, list[tuple[float, float]]]:
    """Days unchanged, and (how many, days) of the changed intervals by length; the imaginary two are among them."""
    changed = [(1.0, _START_DAYS)]
    changed += [(n / _ONE, s * _ONE / n / _DAY_S) for n, s in _pairs(history[2:]) if n > 0 and s > 0]
    return (history[1] if len(history) > 1 else 0) / _DAY_S + _START_DAYS, changed


def _slope(per_day: float, same_days: float, changed: list[tuple[float, float]]) -> float:
    """The log likelihood's first derivative."""
    total = -same_days
    for n, days in changed:
        x = per_day * days
        if x < 600.0:  # beyond it there is nothing left to add, and e^x has no double
            total += n * days / math.expm1(x)
    return total


def _bend(per_day: float, changed: list[tuple[float, float]]) -> float:
    """Its second derivative: negative."""
    total = -1e-300
    for n, days in changed:
        x = per_day * days
        if x < 300.0:
            grown = math.expm1(x)
            total -= n * days * days * (grown + 1.0) / (grown * grown)
    return total


def _likelihood(per_day: float, same_days: float, changed: list[tuple[float, float]]) -> float:
    return sum(n * math.log(-math.expm1(-per_day * days)) for n, days in changed) - per_day * same_days
