"""Count a peer's pages, and write down its own CPU, wall and memory at the first page measured and at the last.

It runs in the peer's environment and needs only the standard library. `FIRST` and `LAST` are page counts from the
variables `BENCH_FIRST` and `BENCH_LAST`; the report is a line of JSON for each of the two on standard output.
CPU is that of the process, all threads, in seconds.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

FIRST = int(os.environ["BENCH_FIRST"])
LAST = int(os.environ["BENCH_LAST"])
SEEDS = os.environ["BENCH_SEEDS"].split()
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "64"))
REDIS = os.environ.get("BENCH_REDIS", "")

_pages = 0


def page() -> bool:
    """One page has been fetched and its links were followed; true from the last page on: it is time to stop."""
    global _pages  # noqa: PLW0603 - the one count of the process
    _pages += 1
    if _pages in {FIRST, LAST}:
        _tell()
    return _pages >= LAST


def _tell() -> None:
    rss = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    now = {"pages": _pages, "wall_s": time.monotonic(), "cpu_s": time.process_time(), "rss_bytes": rss}
    sys.__stdout__.write(json.dumps(now) + "\n")
    sys.__stdout__.flush()
