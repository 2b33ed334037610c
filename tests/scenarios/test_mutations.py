"""Each weakening of the rules must be caught: a simulation that passes them all would prove nothing."""

import pytest

from tests.scenarios import chaos, directed, mutations, small, world

# What a random search over all settings found first, and the number of runs that took: `make explore` does it again.
PINNED: dict[str, tuple[int, str, int]] = {
    "keep-alive": (1, "clocks", 14),
    "receipt": (4, "calm", 33),
    "no-VL": (0, "strike", 2),
    "no-G": (30, "strike", 242),
    "no-D": (0, "strike", 2),
    "previous-owner-only": (12, "strike", 98),
    "gone-at-once": (3, "clocks", 30),
    "ack-before-stop": (0, "churn", 3),
    "no-elders": (3, "clocks", 30),
    "missed-kept": (47, "strike", 378),
    "waiting-ready": (3, "strike", 26),
    "beats-by-id": (3, "clocks", 30),
    "overrides-outside": (0, "churn", 3),
    "wall-clock": (0, "clocks", 6),
    "no-silence": (0, "calm", 1),
    "no-wall-deadline": (5, "frozen", 44),
    "let-go-early": (0, "held", 7),
    "taken-up-at-once": (0, "held", 7),
}


@pytest.mark.parametrize("name", sorted(mutations.MUTATIONS))
def test_a_weakened_rule_is_caught_by_the_schedule_that_strikes_there(name):
    with mutations.weakened(name):
        assert world.World(directed.PLANS[name]).run() is not None


@pytest.mark.parametrize("name", sorted(PINNED))
def test_a_weakened_rule_is_caught_by_a_seed(name):
    seed, setting, _ = PINNED[name]
    with mutations.weakened(name):
        assert chaos.world(seed, setting).run() is not None


@pytest.mark.parametrize(
    ("name", "change"),
    [("no-VL", "placed"), ("ack-before-stop", "placed"), ("gone-at-once", "revoked"), ("no-elders", "revoked")],
)
def test_a_weakened_rule_is_caught_by_what_is_run_exhaustively(name, change):
    """The small enumeration has teeth."""
    assert small.enumerate_all(change, small.ONE, mutation=name).failed is not None


def test_every_rule_has_its_schedule_and_is_whole_again_afterwards():
    assert set(directed.PLANS) == set(mutations.MUTATIONS)
    for mutation in mutations.MUTATIONS.values():
        before = [where.__dict__[name] for where, name, _ in mutation.patches]
        with mutation.applied():
            assert [where.__dict__[name] for where, name, _ in mutation.patches] != before
        assert [where.__dict__[name] for where, name, _ in mutation.patches] == before
