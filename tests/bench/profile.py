"""Where crawlring's CPU goes under the measurement's load: by module and library, and the functions that take most.

`python -m tests.bench.profile [--pages N] [--with py-spy|cprofile] [--stacks FILE]`. py-spy samples from outside and
costs the node next to nothing; it has to be installed beside this Python (`pip install py-spy`) and may need root.
cProfile counts calls exactly and makes Python's own code look up to twice as heavy. Own time is a function's
without what it calls; total is with it. Percentages are of the samples with work, or of the time profiled.
"""

import argparse
import pstats
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench import product, readings, report, web

FIRST = 200
RATE_HZ = 250
DRAIN_S = 60.0
FRAME = re.compile(r"^(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)$")
OURS = ("shared", "node", "coordinator")


class Place(NamedTuple):
    """A function, and the module of ours or the library that it stands in."""

    owner: str
    function: str


class Profile(NamedTuple):
    """Weights by function: samples or seconds."""

    own: Counter[Place]
    total: Counter[Place]
    owners_total: Counter[str]
    """Weight of the stacks that an owner stands in at all; empty where stacks are not known."""
    whole: float


def owner_of(file: str) -> str:
    """`node/links.py` of ours; else the library's name, `python` for its own library, `C` for what is no Python."""
    parts = Path(file).parts
    for room in OURS:
        if room in parts and "site-packages" not in parts:
            return "/".join(parts[parts.index(room) :])
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1].removesuffix(".py")
    if file.startswith("<"):  # <string> is what dataclasses and named tuples write, <frozen ...> the import system
        return "python"
    if not file.endswith(".py"):
        return "C"
    return f"python {parts[-2]}" if "asyncio" in parts else "python"


def of_stacks(lines: Iterable[str]) -> Profile:
    """Of folded stacks, `outer;inner COUNT` a line."""
    own: Counter[Place] = Counter()
    total: Counter[Place] = Counter()
    owners: Counter[str] = Counter()
    whole = 0
    for line in lines:
        stack, _, count = line.rstrip().rpartition(" ")
        places = [_place(frame) for frame in stack.split(";")]
        weight = int(count)
        whole += weight
        own[places[-1]] += weight
        for place in set(places):
            total[place] += weight
        for owner in {place.owner for place in places}:
            owners[owner] += weight
    return Profile(own, total, owners, whole)


def of_stats(stats: pstats.Stats) -> Profile:
    """Of cProfile's counts."""
    own: Counter[Place] = Counter()
    total: Counter[Place] = Counter()
    for (file, _, function), (_, _, own_s, total_s, _) in stats.stats.items():  # type: ignore[attr-defined]
        if "select.epoll" in function:  # it counts wall time, and this is waiting
            continue
        place = Place(owner_of(file), function)
        own[place] += own_s
        total[place] += total_s
    return Profile(own, total, Counter(), own.total())


def text(profile: Profile, *, cpu_ms_a_page: float, count: int = 40) -> str:
    """Three tables; the share of a page's CPU beside each."""

    def share(weight: float) -> tuple[str, str]:
        return f"{100 * weight / profile.whole:.1f}", f"{1_000 * cpu_ms_a_page * weight / profile.whole:.0f}"

    owners: Counter[str] = Counter()
    for place, weight in profile.own.items():
        owners[place.owner] += weight
    ordered = owners.most_common(count)
    parts = [
        report.table(
            ("module or library", "own %", "us a page", "with callees %"),
            [(owner, *share(weight), share(profile.owners_total[owner])[0]) for owner, weight in ordered],
        )
    ]
    for name, weights in (("own time", profile.own), ("with what it calls", profile.total)):
        rows = [(f"{place.owner} {place.function}", *share(weight)) for place, weight in weights.most_common(count)]
        parts.append(report.table((name, "%", "us a page"), rows))
    return "\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a node under the profiler and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--pages", type=int, default=4_000, metavar="N", help="profiled, after the first 200")
    parser.add_argument("--with", dest="by", choices=["py-spy", "cprofile"], default="py-spy")
    parser.add_argument("--native", action="store_true", help="py-spy: name functions of C libraries too")
    parser.add_argument("--count", type=int, default=40, metavar="N", help="lines a table (default 40)")
    parser.add_argument("--stacks", type=Path, metavar="FILE", help="keep py-spy's folded stacks, for flame graphs")
    args = parser.parse_args(argv)
    readings.pin_self(readings.SERVER_CORE)
    with tempfile.TemporaryDirectory(prefix="crawlring-profile-") as temporary:
        folder = Path(temporary)
        with web.running(folder / "web") as origin:
            profiled = _sampled if args.by == "py-spy" else _counted
            profile, cost = profiled(folder, origin, args)
    print(f"{cost.pages} pages, {cost.cpu_ms_a_page:.2f} ms of CPU a page, {cost.requests - cost.pages} robots.txt\n")
    print(text(profile, cpu_ms_a_page=cost.cpu_ms_a_page, count=args.count))
    return 0


def _place(frame: str) -> Place:
    found = FRAME.match(frame)
    return Place(owner_of(found["file"]), found["function"]) if found else Place("C", frame)


def _sampled(folder: Path, origin: web.Origin, args: argparse.Namespace) -> tuple[Profile, report.Sample]:
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        raise SystemExit(f"py-spy is not installed: {sys.executable} -m pip install py-spy (or --with cprofile)")
    stacks = (args.stacks or folder / "stacks").resolve()
    with product.playing(folder / "run", origin) as play:
        play.until(FIRST)
        command = [program, "record", "--format", "raw", "--full-filenames", "--rate", str(RATE_HZ), "--nonblocking"]
        native = ["--native"] if args.native else []
        target = ["--output", str(stacks), "--pid", str(play.child.pid)]
        spy = subprocess.Popen([*command, *native, *target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begin, before = play.mark()
        play.until(FIRST + args.pages)
        end, after = play.mark()
        spy.send_signal(signal.SIGINT)  # it writes what it has
        spy.wait(DRAIN_S)
    if not stacks.exists():
        raise SystemExit("py-spy wrote nothing: it may need root (ptrace)")
    return of_stacks(stacks.read_text().splitlines()), report.sample(begin, end, before, after)


def _counted(folder: Path, origin: web.Origin, args: argparse.Namespace) -> tuple[Profile, report.Sample]:
    """From the node's start to the end of its drain: cProfile cannot be told to begin later."""
    output = folder / "profile"

    def wrap(command: Sequence[str]) -> list[str]:
        at = list(command).index("-m")
        return [*command[:at], "-m", "cProfile", "-o", str(output), *command[at:]]

    with product.playing(folder / "run", origin, wrap=wrap) as play:
        play.until(FIRST)
        begin, before = play.mark()
        play.until(FIRST + args.pages)
        end, after = play.mark()
        play.child.stop(DRAIN_S)
        deadline = time.monotonic() + DRAIN_S
        while not output.exists() and time.monotonic() < deadline:
            time.sleep(product.POLL_S)
    return of_stats(pstats.Stats(str(output))), report.sample(begin, end, before, after)


if __name__ == "__main__":
    sys.exit(main())
