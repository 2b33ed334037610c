"""`crawlring simulate recrawl`: its model against closed forms, ours against its targets, and the command."""

import json
import math

import pytest

from coordinator import cli, recrawl_model, recrawl_policies, simulate
from node import recrawl
from shared import config

SETTINGS = config.Recrawl(enabled=True, interval_max_s=60 * 86_400.0)
WHOLE = slice(0, None)


def line(shape: str, worth: str, budget: float, *, pages: int, delay_s: float = 1.0, days: float = 150.0):
    settings = config.Recrawl(enabled=True, interval_max_s=60 * 86_400.0, visits_per_page_day=budget)
    site = recrawl_model.site(shape, worth, pages, settings=settings, delay_s=delay_s, seed=2)
    return simulate.line_of(shape, worth, [site], settings=settings, days=days, seed=2)


def age_at(rate: float, visits: float) -> float:
    """Mean days since the first unseen change of a page visited so often a day, at even intervals."""
    part = visits / rate
    return (0.5 - part - math.expm1(-1 / part) * part**2) / visits


def test_the_five_pages_of_the_paper_have_its_optimum() -> None:
    changes, worth = (1.0, 2.0, 3.0, 4.0, 5.0), (1.0,) * 5
    visits = recrawl_model.best_visits(changes, worth, recrawl_model.best_price(changes, worth, 5.0))
    assert visits == pytest.approx([1.15, 1.36, 1.35, 1.14, 0.0], abs=0.01)
    fresh = [recrawl_model.freshness_at(rate, often) for rate, often in zip(changes, visits, strict=True)]
    assert sum(fresh) / 5 == pytest.approx(0.374, abs=0.001)


@pytest.mark.parametrize(("rate", "gap"), [(0.3, 1.0), (2.0, 1.0), (5.0, 0.1)])
def test_simulated_freshness_and_age_are_those_of_the_closed_forms(rate: float, gap: float) -> None:
    site = recrawl_model.Site((rate,) * 50, (1.0,) * 50, gap / 50)
    found = recrawl_model.run(site, recrawl_policies.Uniform(), days=100 * gap, seed=1)
    assert found.freshness(WHOLE) == pytest.approx(recrawl_model.freshness_at(rate, 1 / gap), rel=0.02)
    assert found.mean_age(WHOLE) == pytest.approx(age_at(rate, 1 / gap), rel=0.05)
    assert (found.used, found.longest) == (1.0, pytest.approx(gap))


@pytest.mark.parametrize("shape", simulate.SHAPES)
@pytest.mark.parametrize("worth", simulate.WORTHS)
def test_ours_keeps_its_targets(shape: str, worth: str) -> None:
    found = line(shape, worth, 0.2, pages=300)
    assert found.missed == ()
    assert found.ours >= 0.95 * found.oracle and found.ours_early >= 0.95
    assert found.ours > found.uniform
    assert found.ours_used >= 0.99 and found.longest_days <= 60


def test_where_too_little_can_be_learnt_ours_is_no_worse_than_taking_turns() -> None:
    found = line("gamma", "equal", 0.05, pages=600)
    assert found.missed == () and found.ours >= found.uniform - 0.01


def test_a_site_held_back_by_its_delay_uses_what_the_delay_allows() -> None:
    """500 pages at 1,000 s: 0.17 visits a page and day, whatever budget is asked for."""
    found = line("gamma", "equal", 1.0, pages=500, delay_s=1_000.0, days=60.0)
    assert found.budget == pytest.approx(0.1728)
    assert found.missed == () and found.ours_used == 1.0
    assert found.ours > found.uniform


def test_a_policy_that_learns_nothing_misses_the_targets() -> None:
    """The targets can be missed: pages of unequal worth in turn are far from the oracle."""
    figures = {"oracle": 0.8, "ours": 0.59, "uniform": 0.61}
    ours = recrawl_model.Figures(weight=1.0, fresh=(0.5,), age=(0.0,), visits=98, slots=100, longest=61.0)
    missed = set(simulate._missed(figures, figures, ours=ours, budget=0.2, ceiling=60.0))
    assert missed == {"share late", "share early", "uniform late", "uniform early", "budget", "ceiling"}


def test_the_command_prints_a_table_or_one_document(capsys) -> None:
    words = ["simulate", "recrawl", "--population", "gamma", "--importance", "equal", "--budget", "0.2"]
    words += ["--pages", "40,20x2", "--days", "60"]
    status = cli.main([*words, "--json"], modules=["coordinator.simulate"])
    told = json.loads(capsys.readouterr().out)
    assert [(one["pages"], one["sites"]) for one in told] == [(40, 1), (20, 2)]
    assert status == (cli.NO if any(one["missed"] for one in told) else cli.DONE)
    cli.main(words, modules=["coordinator.simulate"])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 3 and table[0].split()[:4] == ["rates", "worth", "pages", "R"] and "20x2" in table[2]


def test_several_runs_are_one_row_of_a_table_with_their_spread(capsys) -> None:
    words = ["simulate", "recrawl", "--population", "gamma", "--importance", "equal", "--budget", "0.2"]
    words += ["--pages", "40", "--days", "60", "--runs", "3"]
    cli.main([*words, "--json"], modules=["coordinator.simulate"])
    told = json.loads(capsys.readouterr().out)
    assert [one["seed"] for one in told] == [1, 2, 3]
    shares = sorted(100 * one["ours"] / one["oracle"] for one in told)
    cli.main([*words, "--markdown"], modules=["coordinator.simulate"])
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.startswith("| rates, importance, pages, R | uniform |") and row.startswith("| gamma, equal, 40, 0.2 |")
    assert f"({shares[0]:.1f} to {shares[-1]:.1f})" in row
    assert row.count("|") == head.count("|")


@pytest.mark.parametrize("shape", simulate.SHAPES)
@pytest.mark.parametrize("worth", simulate.WORTHS)
@pytest.mark.parametrize("budget", [0.05, 0.5])
def test_nobody_who_knows_the_rates_does_better_than_the_closed_form(shape: str, worth: str, budget: float) -> None:
    """Not whoever looks at every page at each visit for the largest index either; both get within 1 % of it."""
    settings = config.Recrawl(enabled=True, interval_max_s=60 * 86_400.0, visits_per_page_day=budget)
    site = recrawl_model.site(shape, worth, 60, settings=settings, delay_s=1.0, seed=3)
    oracle = recrawl_policies.Oracle(site)
    best = oracle.freshness / sum(site.importance)
    for policy in (oracle, LargestIndex(site)):
        found = recrawl_model.run(site, policy, days=400.0, seed=1).freshness(slice(5, None))
        assert 0.99 * best < found < 1.003 * best


class LargestIndex:
    """Knows all rates, and looks at every page for each visit."""

    def __init__(self, site: recrawl_model.Site) -> None:
        self._site = site
        self._last: dict[int, float] = {}

    def first(self, page: int, at: float) -> None:
        self._last[page] = at

    def take(self, now: float) -> int | None:
        site = self._site
        return max(
            self._last,
            key=lambda page: recrawl.index(
                site.rates[page], (now - self._last[page]) * recrawl_model.DAY_S, site.importance[page]
            ),
        )

    def visited(self, page: int, now: float, *, changed: bool) -> None:  # noqa: ARG002 - it knows
        self._last[page] = now


@pytest.mark.parametrize(
    "wrong",
    [
        ["--pages", "0"],
        ["--pages", "x3"],
        ["--budget", "0"],
        ["--population", "zipf"],
        ["--runs", "0"],
        ["--json", "--markdown"],
    ],
)
def test_wrong_usage_is_said(wrong: list[str], capsys) -> None:
    assert cli.main(["simulate", "recrawl", *wrong], modules=["coordinator.simulate"]) == cli.USAGE
    assert "simulate" in capsys.readouterr().err
