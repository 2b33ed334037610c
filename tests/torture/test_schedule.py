"""A plan is the same for the same seed, leaves calm and an end, and puts nothing together that cannot go together."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.torture import nemesis, schedule, wounds

SEEDS = st.integers(0, 2**31)
SECONDS = st.floats(60, 3000)
NAMES = st.lists(st.sampled_from(sorted(nemesis.FAULTS)), min_size=1, unique=True)
Plan = Sequence[schedule.Planned]


def clashing(plan: Plan) -> list[tuple[schedule.Planned, schedule.Planned]]:
    """Pairs that are at work at once although one would undo or hide the other, said in full here."""
    found = []
    for one, other in itertools.combinations(plan, 2):
        if one.until_s < other.at_s or other.until_s < one.at_s:
            continue
        mine, its = nemesis.FAULTS[one.name].touches, nemesis.FAULTS[other.name].touches
        shared = mine & its & {"etcd", "store", "web", "spares", "all-nodes"}
        nobody_left = ("all-nodes" in mine and "nodes" in its) or ("nodes" in mine and "all-nodes" in its)
        if shared or nobody_left or one.name == other.name:
            found.append((one, other))
    return found


@given(SEEDS, SECONDS, NAMES)
@settings(max_examples=60, deadline=None)
def test_the_same_seed_is_the_same_plan(seed: int, seconds: float, names: list[str]) -> None:
    assert schedule.plan(seed, seconds, names) == schedule.plan(seed, seconds, list(names))


@given(SEEDS, SECONDS, NAMES, st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_every_plan_is_sound(seed: int, seconds: float, names: list[str], overlap: float) -> None:
    plan = schedule.plan(seed, seconds, names, overlap=overlap)
    assert [one.at_s for one in plan] == sorted(one.at_s for one in plan)
    assert not clashing(plan)
    for one in plan:
        lo_s, hi_s = nemesis.FAULTS[one.name].seconds
        assert one.name in names
        assert lo_s - 0.001 <= one.lasts_s <= hi_s + 0.001
        assert one.at_s >= 0
        assert one.until_s <= seconds - schedule.END_S + 0.001, "there is time to heal"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_quarter_of_an_hour_has_every_fault_and_calm_between(seed: int) -> None:
    names = [name for name, fault in nemesis.FAULTS.items() if "single" in fault.needs]
    plan = schedule.plan(seed, 900, names)
    assert 45 <= len(plan) <= 90
    assert len({one.name for one in plan}) >= len(names) - 6, "those that come late in the deck may not come at all"
    at_once = [sum(other.at_s <= one.at_s < other.until_s for other in plan) for one in plan]
    assert max(at_once) >= 2, "sometimes several at once"
    busy_until, calms = 0.0, []
    for one in plan:
        calms.append(one.at_s - busy_until)
        busy_until = max(busy_until, one.until_s)
    assert sum(calm >= schedule.CALM_S for calm in calms) >= 8, "and time to recover"


def test_other_seeds_are_other_plans() -> None:
    assert schedule.plan(1, 300, sorted(nemesis.FAULTS)) != schedule.plan(2, 300, sorted(nemesis.FAULTS))


@pytest.mark.parametrize(
    "weak",
    [lambda *_: True, lambda _, one, other: one.name != other.name],
    ids=["anything together", "any two names together"],
)
def test_without_its_rule_a_plan_clashes(monkeypatch: pytest.MonkeyPatch, weak: Callable[..., bool]) -> None:
    monkeypatch.setattr(schedule, "together", weak)
    assert any(clashing(schedule.plan(seed, 900, sorted(nemesis.FAULTS))) for seed in range(5))


def test_the_table_of_faults_is_whole() -> None:
    assert len(nemesis.FAULTS) >= 40
    for name, fault in nemesis.FAULTS.items():
        assert fault.name == name
        assert fault.says
        assert fault.touches
        assert fault.needs <= wounds.ANY_STORE
        assert 0 < fault.seconds[0] <= fault.seconds[1] <= 60
