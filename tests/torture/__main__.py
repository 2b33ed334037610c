"""Torture a cluster on separate hosts: `python -m tests.torture --minutes 15 --seed 1`, or `--faults kill,term --runs 3`.

Needs root, for the network namespaces that are its hosts. Everything it starts is gone at the end; the folder
with its logs, its report and its timeline stays.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.torture import arena, faults_alone, judge, nemesis, report, run, schedule, timeline

UTILISED = 0.78  # of a site's turns: the rest is lost to faults, so that the crawl lasts about as long as they do
DONE, NO, USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 when every promise held, 1 when one did not, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    if os.geteuid() != 0:
        print("separate hosts are network namespaces, which take root", file=sys.stderr)
        return USAGE
    if not Path(arena.FAKETIME).exists():
        print("libfaketime is missing (Debian's package libfaketime)", file=sys.stderr)
        return USAGE
    if options.faults:
        return faults_alone.run_all(options)
    return _together(options)


def _together(options: argparse.Namespace) -> int:
    seconds = options.minutes * 60
    folder = options.out or Path("torture") / f"{options.store}-{options.seed}"
    if (folder / "run.json").exists():
        print(f"{folder} holds an earlier run: give another --out", file=sys.stderr)
        return USAGE
    names = [name for name, fault in nemesis.FAULTS.items() if options.store in fault.needs]
    pages = options.pages or max(10, round(seconds * UTILISED / options.delay))
    settings = arena.Settings(
        store=options.store,
        sites=options.sites,
        pages=pages,
        seed=options.seed,
        delay_s=options.delay,
        ttl_s=options.ttl,
        view_lease_s=options.view_lease,
        rejoin_s=options.rejoin,
    )
    plan = schedule.plan(options.seed, seconds, names)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f}  {line}", flush=True)

    run.torture(folder, settings, plan, seconds=seconds, say=say)
    verdict = judge.judge(folder)
    (folder / "report.json").write_bytes(report.encode(verdict))
    text = report.text(verdict)
    (folder / "report.txt").write_text(text)
    (folder / "timeline.svg").write_text(timeline.draw(folder))
    print(text)
    return DONE if verdict.held else NO


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15, help="of faults (default 15); the crawl's end comes after")
    parser.add_argument("--seed", type=int, default=1, help="the same seed is the same schedule (default 1)")
    parser.add_argument("--store", choices=("single", "cluster"), default="single", help="one Valkey, or 3 + 3")
    parser.add_argument("--out", type=Path, help="folder of the run (default torture/STORE-SEED)")
    parser.add_argument("--sites", type=int, default=48)
    parser.add_argument("--pages", type=int, help="of each site (default: as many as the time allows)")
    parser.add_argument("--delay", type=float, default=1.0, help="politeness delay in seconds (default 1)")
    parser.add_argument("--ttl", type=int, default=4, help="lease TTL in seconds (default 4)")
    parser.add_argument("--view-lease", type=float, default=2.5, help="VL in seconds (default 2.5)")
    parser.add_argument("--rejoin", type=float, default=3.0, help="seconds a killed lease stays out (default 3)")
    parser.add_argument("--faults", help="comma list of faults, each alone, or `all`; see --list")
    parser.add_argument("--runs", type=int, default=3, help="of each fault alone (default 3)")
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side (default 1)")
    parser.add_argument("--list", action=_List, help="name the faults")
    return parser


class _List(argparse.Action):
    """Print the faults and end."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, *_: object) -> None:
        for name, fault in nemesis.FAULTS.items():
            print(f"{name:26} {fault.says}")
        sys.exit(DONE)


if __name__ == "__main__":
    sys.exit(main())
