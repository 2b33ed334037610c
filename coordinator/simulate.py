"""`crawlring simulate`, and `recrawl` of it: how fresh pages stay that we visit again, beside other crawlers' rules.

The pages are drawn, their changes are random and time is virtual; the decisions are those of the product itself.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence

from coordinator import cli, growth, recrawl_model, recrawl_policies, recrawl_table
from shared import config

SHAPES, WORTHS, BUDGETS = ("gamma", "lognormal"), ("equal", "pareto"), (0.05, 0.2, 1.0)
RULES = ("uniform", "nutch", "storm", "ours")
POLICIES = ("oracle", *RULES)
LEARNT = 30.0  # days after which ours is held to its targets
ENOUGH = 0.2  # visits for each page and day below which there is too little to learn from
SHARE_MIN, BELOW_UNIFORM_MAX, USED_MIN = 0.95, 0.01, 0.99

EPILOG = """examples:
  crawlring simulate recrawl                                   the 12 populations; some minutes
  crawlring simulate recrawl --population gamma --budget 0.2   one population; some seconds
  crawlring simulate recrawl --population gamma --importance pareto --budget 1 \\
      --pages 200000,100x50 --delay 5 --days 60
                                    a large site, held back by its delay, among 50 small ones; some minutes

The columns are freshness as a share of what `oracle` reaches, which knows every page's change rate, or of the optimum
in closed form where that is more; in the last 60 days, and of ours also from day 30 to day 60. The visits a day for
each page are what the site's delay allows of --budget.

exit status: 0 ours kept its targets, 1 it missed one (95 % of the oracle where there are 0.2 or more visits for each
page and day, never more than 1 point below uniform, 99 % of the budget used, no wait beyond the ceiling if one round of
the pages fits twice into it)"""


EXAMPLES = """examples:
  crawlring simulate growth             1 to 1,000 nodes: which part of a cluster is full first
  crawlring simulate recrawl            how fresh pages stay

`crawlring simulate WHAT --help` says more of each."""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    summary = "simulate in virtual time: a recrawl policy beside others' rules, or a cluster that grows"
    simulations = commands.add_parser(
        "simulate",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    kinds = simulations.add_subparsers(metavar="WHAT", required=True)
    growth.register(kinds)
    told = "a policy of visiting again, beside other crawlers' rules"
    parser = kinds.add_parser(
        "recrawl",
        help=told,
        description=f"Simulate {told}.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--population", choices=SHAPES, help="how change rates are spread; default: both")
    parser.add_argument("--importance", choices=WORTHS, help="of pages; default: both")
    parser.add_argument(
        "--budget", metavar="R", type=_positive, help="visits for each page and day; default: 0.05, 0.2, 1"
    )
    parser.add_argument(
        "--pages", metavar="N[xSITES],...", type=_sites, default=[1000], help="pages of each site; default: 1000"
    )
    parser.add_argument("--days", metavar="D", type=_positive, default=150.0, help="simulated; default: 150")
    parser.add_argument(
        "--delay", metavar="S", type=_positive, default=1.0, help="seconds between two visits; default: 1"
    )
    parser.add_argument(
        "--ceiling", metavar="DAYS", type=_positive, default=60.0, help="the longest interval; default: 60"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=1)
    parser.add_argument("--runs", metavar="N", type=_count, default=1, help="with seeds that follow it; default: 1")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document")
    form.add_argument("--markdown", action="store_true", help="one table, a row for each population, over all runs")
    parser.set_defaults(run=simulate)


def simulate(args: argparse.Namespace) -> int:
    lines = []
    plain = not (args.json or args.markdown)
    if plain:
        print(recrawl_table.HEAD)
    for line in _lines(args):
        lines.append(line)
        if plain:
            print(recrawl_table.told(line), flush=True)
    if args.json:
        cli.print_json([line._asdict() for line in lines])
    elif args.markdown:
        print(recrawl_table.markdown(lines))
    return cli.NO if any(line.missed for line in lines) else cli.DONE


def _lines(args: argparse.Namespace) -> Iterator[recrawl_table.Line]:
    shapes = (args.population,) if args.population else SHAPES
    worths = (args.importance,) if args.importance else WORTHS
    budgets = (args.budget,) if args.budget else BUDGETS
    seeds = range(args.seed, args.seed + args.runs)
    for shape, worth, budget, seed in itertools.product(shapes, worths, budgets, seeds):
        settings = config.Recrawl(
            enabled=True, interval_max_s=args.ceiling * recrawl_model.DAY_S, visits_per_page_day=budget
        )
        drawn = [
            recrawl_model.site(shape, worth, pages, settings=settings, delay_s=args.delay, seed=seed + number)
            for number, pages in enumerate(args.pages)
        ]
        # The large and the small have a line each: what one gains must not hide what another loses.
        for size in sorted(set(args.pages), reverse=True):
            alike = [site for site in drawn if len(site.rates) == size]
            yield line_of(shape, worth, alike, settings=settings, days=args.days, seed=seed)


def line_of(
    shape: str, worth: str, sites: Sequence[recrawl_model.Site], *, settings: config.Recrawl, days: float, seed: int
) -> recrawl_table.Line:
    """Run every policy on these sites, which are all of one size."""
    oracles = [recrawl_policies.Oracle(site) for site in sites]
    policies = {"oracle": oracles} | {name: [_policy(name, site, settings) for site in sites] for name in RULES}
    figures = {
        name: recrawl_model.together(
            [recrawl_model.run(site, policy, days=days, seed=seed) for site, policy in zip(sites, each, strict=True)]
        )
        for name, each in policies.items()
    }
    late, early = _bins(days, days - min(60.0, days / 2), days), _bins(days, LEARNT, 2 * LEARNT)
    fresh = {name: found.freshness(late) for name, found in figures.items()}
    soon = {name: found.freshness(early) for name, found in figures.items()}
    best = sum(oracle.freshness for oracle in oracles) / figures["oracle"].weight
    fresh["oracle"], soon["oracle"] = max(fresh["oracle"], best), max(soon["oracle"], best)
    ours, budget = figures["ours"], sites[0].budget
    return recrawl_table.Line(
        rates=shape,
        importance=worth,
        pages=len(sites[0].rates),
        sites=len(sites),
        budget=round(budget, 4),
        seed=seed,
        **{name: round(fresh[name], 4) for name in POLICIES},
        ours_early=round(soon["ours"] / soon["oracle"], 4),
        uniform_early=round(soon["uniform"] / soon["oracle"], 4),
        age_days=round(ours.mean_age(late), 2),
        nutch_used=round(figures["nutch"].used, 4),
        storm_used=round(figures["storm"].used, 4),
        ours_used=round(ours.used, 4),
        longest_days=round(ours.longest, 1),
        missed=tuple(
            _missed(fresh, soon, ours=ours, budget=budget, ceiling=settings.interval_max_s / recrawl_model.DAY_S)
        ),
    )


def _missed(
    fresh: dict[str, float], soon: dict[str, float], *, ours: recrawl_model.Figures, budget: float, ceiling: float
) -> Iterator[str]:
    """The targets that ours missed, in the last days or soon after it has learnt."""
    for when, found in (("late", fresh), ("early", soon)):
        if budget >= ENOUGH and found["ours"] < SHARE_MIN * found["oracle"]:
            yield f"share {when}"
        if found["ours"] < found["uniform"] - BELOW_UNIFORM_MAX:
            yield f"uniform {when}"
    if ours.used < USED_MIN:
        yield "budget"
    if ours.longest > ceiling and 2 / budget <= ceiling:
        yield "ceiling"


def _policy(name: str, site: recrawl_model.Site, settings: config.Recrawl) -> recrawl_model.Policy:
    """A policy at its start; the adaptive rules begin at the interval that the budget allows."""
    made: dict[str, Callable[[], recrawl_model.Policy]] = {
        "uniform": recrawl_policies.Uniform,
        "nutch": lambda: recrawl_policies.nutch(1 / site.budget),
        "storm": lambda: recrawl_policies.storm(1 / site.budget),
        "ours": lambda: recrawl_policies.Ours(site, settings),
    }
    return made[name]()


def _bins(days: float, begin: float, end: float) -> slice:
    """The bins from one day to another; of a short simulation, its last half."""
    width = days / recrawl_model.BINS
    first, last = round(begin / width), round(end / width)
    return slice(first, last) if first < last <= recrawl_model.BINS else slice(recrawl_model.BINS // 2, None)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("a number above 0")
    return number


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("a whole number above 0")
    return int(text)


def _sites(text: str) -> list[int]:
    """`200000,100x50`: one site of 200,000 pages and 50 of 100."""
    found: list[int] = []
    for part in text.split(","):
        pages, _, sites = part.partition("x")
        if not pages.isdecimal() or (sites and not sites.isdecimal()) or int(pages) < 1:
            raise argparse.ArgumentTypeError("pages of each site, like 1000 or 200000,100x50")
        found += [int(pages)] * int(sites or 1)
    return found
