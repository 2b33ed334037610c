"""`crawlring simulate growth`: what each part of a cluster has to do as it grows, and which part is full first."""

import argparse
from pathlib import Path

from coordinator import cli, growth_costs
from shared import config, errors

NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000)

EPILOG = """examples:
  crawlring simulate growth                                  1 to 1,000 nodes, 10 million sites; a minute or two
  crawlring simulate growth --nodes 1,10,100 --sites 1000000
  crawlring simulate growth --costs measured.json --json     with costs of your own machines

What is the product's own code: the membership protocol of up to 48 sessions (beyond, each stands for several alike),
the ring, who gains what, and for one node of each event its claims and first requests. What is arithmetic: the store,
DNS and CPU, from measured costs; and the tail of the sites beyond the 100,000 largest.

exit status: 0 every takeover kept its bound (P5), 1 one did not"""


def register(kinds: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `growth` to what can be simulated."""
    summary = "simulate a cluster that grows: which part of it is full first"
    parser = kinds.add_parser(
        "growth",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--nodes", metavar="N,...", type=_sizes, default=list(NODES), help="cluster sizes; default: 1 to 512, 1000"
    )
    parser.add_argument("--sites", metavar="N", type=_whole, default=10_000_000, help="default: 10000000")
    parser.add_argument("--urls-per-site", metavar="N", type=_number, default=1_000.0, help="the mean; default: 1000")
    parser.add_argument(
        "--exponent", metavar="S", type=_number, default=1.05, help="Zipf's, of URLs over sites; default: 1.05"
    )
    parser.add_argument("--days", metavar="D", type=_number, default=30.0, help="of crawling; default: 30")
    parser.add_argument("--seed", metavar="N", type=int, default=1)
    parser.add_argument("--costs", metavar="FILE", type=Path, help="JSON: measured costs that replace ours")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document")
    form.add_argument("--markdown", action="store_true", help="the tables as in docs/growth.md")
    parser.set_defaults(run=simulate)


def simulate(args: argparse.Namespace) -> int:
    """Every size in turn, then what they say together."""
    from coordinator import growth_lines, growth_sites, growth_table  # noqa: PLC0415 - heavy: --help needs none of it

    settings = config.Config()
    costs = _costs(args.costs)
    population = growth_sites.Population(
        args.sites, args.sites * args.urls_per_site, args.exponent, settings.ring.algorithm, args.seed
    )
    lines = list(growth_lines.lines_of(args.nodes, population, settings, costs=costs, days=args.days))
    answer = growth_table.answered(
        lines, population, costs=costs, delay_s=settings.politeness.delay_min_s, days=args.days
    )
    if args.json:
        cli.print_json({"costs": costs, "sizes": lines, "answer": answer})
    else:
        print(growth_table.written(lines, answer, markdown=args.markdown))
    return cli.NO if any(not takeover.kept for line in lines for takeover in line.takeovers) else cli.DONE


def _costs(file: Path | None) -> growth_costs.Costs:
    if file is None:
        return growth_costs.Costs()
    try:
        return growth_costs.read(file.read_bytes())
    except OSError as error:
        raise errors.ConfigError(f"--costs: {error}") from error


def _sizes(text: str) -> list[int]:
    sizes = [_whole(part) for part in text.split(",")]
    if sorted(set(sizes)) != sizes:
        raise argparse.ArgumentTypeError("growing sizes, like 1,2,4")
    return sizes


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("a whole number above 0")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("a number above 0")
    return number
