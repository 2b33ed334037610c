"""P2 to P4 on the real scripts: whatever is lost, comes late or again, or is forgotten by the store, they hold."""

import dataclasses

import pytest

from shared import frontier, records
from tests.stores import shapes
from tests.stores.amnesia import explore, schedules, scripts

SEEDS = range(60)

# How many schedules it took, from seed 0 on, until each weakened script was found out.
RUNS = {
    "commit-no-epoch": 2,
    "claim-no-epoch": 1,
    "claim-any-epoch": 1,
    "claim-begins-again": 1,
    "claim-at-once": 1,
    "claim-own-delay": 1,
    "commit-no-n": 1,
    "commit-same-n-only": 3,
    "commit-no-jump": 5,
    "commit-no-lost-claim": 3,
    "forgotten-shortens": 5,
    "due-moves-back": 1,
    "fenced-due-dropped": 6,
    "fenced-delay-dropped": 2,
    "carried-dropped": 2,
    "removed-from-the-end": 3,
    "page-counted-twice": 7,
    "commit-keeps-mark": 2,
    "offer-unseen": 1,
    "try-no-tenure": 38,
    "try-after-commit": 128,
    "try-counts-repeats": 2,
}


def test_the_scripts_keep_their_promises_whatever_becomes_of_calls_and_store(store: str) -> None:
    with explore.Explorer(store) as explorer:
        found = explorer.first(SEEDS)
        if found is not None:
            pytest.fail(explorer.transcript(explorer.shortest(schedules.planned(found[0]))))
        did = explorer.figures
    assert did.calls > 20 * len(SEEDS)
    assert did.repeated > 3 * len(SEEDS)
    assert min(did.fenced, did.forgotten, did.lapses, did.counted) > len(SEEDS) // 3, did


def test_each_weakened_script_has_its_seed() -> None:
    assert RUNS.keys() == scripts.MUTATIONS.keys()


@pytest.mark.parametrize("mutation", scripts.MUTATIONS)
def test_a_weakened_script_is_found_out(store: str, mutation: str) -> None:
    with explore.Explorer(store) as explorer:
        assert explorer.run(schedules.planned(RUNS[mutation] - 1), mutation=mutation), scripts.MUTATIONS[mutation].says


def test_a_store_that_is_strict_in_name_only_is_found_out(valkey: str) -> None:
    with explore.Explorer(valkey) as explorer:
        plans = [dataclasses.replace(schedules.planned(seed), honest=False) for seed in SEEDS if seed % 2]
        broken = [failure.promise for plan in plans if (failure := explorer.run(plan))]
    assert "what a strict store answered for is gone" in broken


def test_a_failing_schedule_is_made_short_and_reads_like_a_story(valkey: str) -> None:
    with explore.Explorer(valkey) as explorer:
        plan = explorer.shortest(schedules.planned(RUNS["commit-no-n"] - 1), mutation="commit-no-n")
        assert explorer.run(plan) is None, "the script as it is keeps the promise"
        head, *steps, broken = explorer.transcript(plan, mutation="commit-no-n").splitlines()
    assert head == f"seed 0, default durability, commit-no-n: {len(plan.moves)} moves"
    assert 2 <= len(steps) <= 4
    assert "commits example.com tenure" in steps[-2]
    assert "once more" in steps[-1]
    assert broken == "broken: the commit was applied, not repeated"


def test_a_change_of_what_the_scripts_no_longer_say_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no longer say"):
        scripts.changed("return 1", (("return 2", "return 3"),))


async def test_a_mark_that_comes_after_its_tenures_commit_is_none(desk: frontier.Frontier) -> None:
    """The exploration found it: the page that n2 did commit was counted against it by n2's own late call."""
    await shapes.offered(desk, shapes.offer(0))
    await shapes.claimed(desk, "n1", 1, delay_s=0.0)
    assert (await shapes.claimed(desk, "n2", 2, delay_s=0.0)).barren
    assert await desk.attempt(shapes.SITE, "n2", 2, shapes.url(0)) == 1
    await desk.commit(shapes.SITE, "n2", 2, 1, records.Commit())
    assert await desk.attempt(shapes.SITE, "n2", 2, shapes.url(0)) == 0
    await shapes.claimed(desk, "n3", 3, delay_s=0.0)
    assert (await shapes.claimed(desk, "n4", 4, delay_s=0.0)).barren
    assert await desk.attempt(shapes.SITE, "n4", 4, shapes.url(0)) == 1, "n3's tenure alone ended at it"
