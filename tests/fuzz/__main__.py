"""`python -m tests.fuzz --minutes M`: every property of this folder with new examples, in turn, until the time is over.

Exit status 1 with the smallest failing example of each property that failed. Properties that need a server or a
fixture are left to the suite.
"""

import argparse
import importlib
import inspect
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import is_hypothesis_test

from tests.fuzz import budget


def properties() -> dict[str, Callable[[], Any]]:
    """Every property that asks for nothing but its examples, by name."""
    found: dict[str, Callable[[], Any]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.fuzz.{path.stem}")
        for name, value in vars(module).items():
            # Outside pytest nobody awaits a coroutine.
            if is_hypothesis_test(value) and not inspect.signature(value).parameters:
                found[f"{path.stem}.{name}"] = value
    return found


def main() -> int:
    """Try all in turn, each as often as the others."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="", help="properties whose name holds this")
    options = parser.parse_args()
    budget.long = True
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of every connection that a test cuts
    chosen = {name: one for name, one in properties().items() if options.only in name}
    rounds: Counter[str] = Counter()
    spent_s: Counter[str] = Counter()
    failed: dict[str, str] = {}
    until_s = time.monotonic() + options.minutes * 60
    while chosen and time.monotonic() < until_s:
        for name, one in list(chosen.items()):
            began_s = time.monotonic()
            try:
                one()
            except Exception:  # noqa: BLE001 - whatever a property raises is its finding
                failed[name] = traceback.format_exc(limit=-6)
                del chosen[name]  # its first finding is enough
                print(f"FAILED {name}\n{failed[name]}", flush=True)
            rounds[name] += 1
            spent_s[name] += time.monotonic() - began_s  # type: ignore[assignment]
            if time.monotonic() >= until_s:
                break
    for name, count in sorted(rounds.items()):
        print(f"{'FAILED' if name in failed else 'held':6} {name}: {count} rounds, {spent_s[name]:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
