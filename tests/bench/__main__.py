"""crawlring beside other crawlers on the same web and core: `python -m tests.bench`, or `make bench`.

Each round runs every contender once, one after the other (A B C A B C); a ratio is taken within a round, a figure is
the median of the rounds with the least and the greatest. The client process has core 0; the web, the stores and this
program share core 1. A peer that cannot be installed or does not come to its last page is named as not run.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.bench import chart, contenders, environments, page, readings, report, web


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write what was asked for; 1 if a floor is missed or a contender did not run."""
    args = _arguments(argv)
    chosen = [one for one in contenders.CONTENDERS if one.name in {"crawlring", *args.only}]
    readings.pin_self(readings.SERVER_CORE)
    with tempfile.TemporaryDirectory(prefix="crawlring-bench-") as folder, web.running(Path(folder) / "web") as origin:
        machine = {**readings.machine(), "origin": origin.server}
        for name, value in machine.items():
            print(f"{name:<8}{value}", flush=True)
        rows = _rounds(chosen, origin, args.rounds, args.share)
        memory = _memory(origin, args.only) if args.memory else {}
    results = report.Results(rows, machine, memory)
    print(f"\n{report.speed_table(results)}\n{report.store_table(results)}\n{page.memory_text(results)}")
    missed = page.missed(results)
    print("\n".join(missed) or "every floor is reached")
    _write(results, args)
    return 1 if missed else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    peers = [name for name in contenders.BY_NAME if name != "crawlring"]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of all contenders (default 5)")
    parser.add_argument(
        "--share", type=float, default=1.0, metavar="X", help="of the pages of a run: 0.2 is a quick look"
    )
    parser.add_argument("--only", metavar="NAME,...", default=",".join(peers), help=f"these peers: {', '.join(peers)}")
    parser.add_argument("--memory", action="store_true", help="memory after 10,000 pages, too (Scrapy: some minutes)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all samples")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the page docs/bench.md")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="the chart")
    args = parser.parse_args(argv)
    args.only = [name for name in args.only.split(",") if name]
    unknown = set(args.only) - contenders.BY_NAME.keys()
    if unknown or args.rounds < 1:
        parser.error(f"unknown: {', '.join(sorted(unknown))}" if unknown else "at least one round")
    return args


def _rounds(chosen: Sequence[contenders.Contender], origin: web.Origin, rounds: int, share: float) -> list[report.Row]:
    samples: dict[str, list[report.Sample]] = {one.name: [] for one in chosen}
    missing: dict[str, str] = {}
    for number in range(1, rounds + 1):
        for one in chosen:
            if one.name in missing:
                continue
            try:
                sample = contenders.run(one, origin, pages=max(100, round(share * one.pages)))
            except (environments.NotInstalled, contenders.Failed) as error:
                missing[one.name] = str(error)
                print(f"round {number}  {one.name:<13}not run: {error}", flush=True)
                continue
            samples[one.name].append(sample)
            print(
                f"round {number}  {one.name:<13}{sample.pages:>6} pages {sample.pages_per_cpu_s:8.1f} per CPU-second"
                f"{sample.cpu_ms_a_page:8.2f} ms a page{sample.wall_s:7.1f} s{sample.rss_bytes / 1e6:6.0f} MB",
                flush=True,
            )
    return [
        report.Row(
            name=one.name,
            about=one.about,
            versions=environments.versions(one.environment) if one.environment else "this checkout",
            # A contender that failed once has no figure: fewer rounds than the others would be no comparison.
            samples=[] if one.name in missing else samples[one.name],
            missing=missing.get(one.name, ""),
            floor=one.floor,
            aim=one.aim,
        )
        for one in chosen
    ]


def _memory(origin: web.Origin, only: Sequence[str]) -> dict[str, int]:
    """Resident bytes after 10,000 pages: crawlring, and Scrapy if it is among the chosen."""
    found = {}
    for name in ("crawlring", "scrapy"):
        if name == "crawlring" or name in only:
            try:
                sample = contenders.run(contenders.BY_NAME[name], origin, pages=report.MEMORY_PAGES - contenders.FIRST)
            except (environments.NotInstalled, contenders.Failed) as error:
                print(f"memory   {name:<13}not run: {error}", flush=True)
                continue
            found[name] = sample.rss_bytes
            print(
                f"memory   {name:<13}{sample.rss_bytes / 1e6:6.0f} MB after {report.MEMORY_PAGES:,} pages", flush=True
            )
    return found


def _write(results: report.Results, args: argparse.Namespace) -> None:
    if args.json:
        rows = msgspec.to_builtins(report.as_json(results))
        report.write_json(args.json, "crawlers", rows, results.machine)
    if args.markdown:
        args.markdown.write_text(page.markdown(results))
    if args.svg:
        args.svg.write_text(chart.bars(page.TITLE, page.bars(results), note=page.note(results)))


if __name__ == "__main__":
    sys.exit(main())
