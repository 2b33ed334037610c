"""Each fault alone, several runs of each: a small crawl, one fault in the middle, and the takeover times it led to."""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from coordinator import nodes
from tests.torture import arena, judge, nemesis, report, run, schedule

SITES = 30
DELAY_S = 1.0
AT_S = 4.0  # of crawling, after the warm-up of every run
AFTER_S = 14.0  # of pages that are left when the fault is healed
RUN_S = 420.0
DONE, NO, USAGE = 0, 1, 2


def run_all(options: argparse.Namespace) -> int:
    """Every run in a process of its own, some side by side; a table at the end."""
    known = [name for name, fault in nemesis.FAULTS.items() if options.store in fault.needs]
    names = known if options.faults == "all" else options.faults.split(",")
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"no such fault on a {options.store} store: {', '.join(unknown)}; --list names them", file=sys.stderr)
        return USAGE
    root = options.out or Path("torture") / f"alone-{options.store}"
    jobs = [(name, number) for number in range(1, options.runs + 1) for name in names]
    with ThreadPoolExecutor(options.at_once) as pool:
        try:
            statuses = list(pool.map(lambda job: _spawn(root, job[0], job[1], options.store), jobs))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)  # those that run have had the signal, too
            raise
    verdicts = [
        (name, judge.judge(folder, single=True))
        for name, number in jobs
        if (folder := root / f"{name}-{number}").joinpath("run.json").exists()
    ]
    root.mkdir(parents=True, exist_ok=True)
    unfinished = [name for name, number in jobs if not (root / f"{name}-{number}" / "run.json").exists()]
    table = report.combine(verdicts, unfinished=unfinished)
    (root / "faults.md").write_text(table)
    print(table)
    return DONE if not any(statuses) and not unfinished and all(one.held for _, one in verdicts) else NO


def _spawn(root: Path, name: str, number: int, store: str) -> int:
    folder = root / f"{name}-{number}"
    if (folder / "report.json").exists():
        print(f"{name} {number}: done before", flush=True)
        return DONE if json.loads((folder / "report.json").read_bytes())["held"] else NO
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    command = [sys.executable, "-P", "-m", "tests.torture.faults_alone", name, str(number), str(folder), store]
    with (folder / "run.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=nodes.packages())
        try:
            status = process.wait(RUN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
    word = "held" if status == 0 else f"NOT HELD (status {status}, see {folder})"
    print(f"{name} {number}: {word} in {time.monotonic() - began:.0f} s", flush=True)
    return status


def run_one(name: str, number: int, folder: Path, store: arena.StoreKind) -> int:
    """One run of one fault."""
    rng = Random(f"{name} {number}")
    lasts_s = rng.uniform(*nemesis.FAULTS[name].seconds)
    seconds = AT_S + lasts_s
    settings = arena.Settings(
        store=store,
        sites=SITES,
        pages=round((run.WARM_S + seconds + AFTER_S) / DELAY_S),
        seed=number,
        delay_s=DELAY_S,
    )
    plan = [schedule.Planned(AT_S, name, lasts_s, rng.randrange(2**31))]
    run.torture(folder, settings, plan, seconds=seconds, say=lambda line: print(line, flush=True))
    verdict = judge.judge(folder, single=True)
    (folder / "report.json").write_bytes(report.encode(verdict))
    (folder / "report.txt").write_text(report.text(verdict))
    print(report.text(verdict))
    return DONE if verdict.held else NO


if __name__ == "__main__":
    _name, _number, _folder, _store = sys.argv[1:]
    assert _store in ("single", "cluster")
    sys.exit(run_one(_name, int(_number), Path(_folder), _store))  # type: ignore[arg-type]
