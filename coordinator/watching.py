"""What `up` and `demo` show while they look on: progress, quiet, and the interrupts that end it.

It reads values that others fetched; it knows no store and no process.
"""

import asyncio
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared import records

PLAIN_LINE_S = 5.0  # between progress lines that do not overwrite each other
QUIET_S = 2.0  # nothing was pending for this long
QUIET_REPORTS = 3  # and each node has said so this often: a hint needs a second to reach a node's own figures
LATER_S = 60.0  # a retry that comes within this is waited for, a longer one is left for the next run


@dataclass(slots=True)
class Quiet:
    """Since when nothing is pending anywhere, by the nodes' own reports; any work begins it anew."""

    since_s: float | None = None
    said: dict[str, set[int]] = field(default_factory=dict)
    """node -> times of its reports since then."""

    def see(self, reports: Mapping[str, records.NodeReport], *, alive: Sequence[str], sites: int, now_s: float) -> bool:
        """Take a look's reports; True once it has been quiet for long enough."""
        if not alive or set(reports) < set(alive) or not is_quiet([reports[node] for node in alive], sites=sites):
            self.since_s = None
            self.said = {}
            return False
        if self.since_s is None:
            self.since_s = now_s
        for node in alive:
            self.said.setdefault(node, set()).add(reports[node].time_ms)
        return now_s - self.since_s >= QUIET_S and all(len(said) >= QUIET_REPORTS for said in self.said.values())


def is_quiet(reports: Sequence[records.NodeReport], *, sites: int) -> bool:
    """Nothing to do now or soon, for all `sites` of the index."""
    if any(report.state != "member" for report in reports) or sum(report.sites for report in reports) < sites:
        return False
    busy = any(report.pending or report.in_flight or report.unclaimed or report.unlooked for report in reports)
    soon = any(report.later_in_s is not None and report.later_in_s <= LATER_S for report in reports)
    return not busy and not soon


def progress(reports: Mapping[str, records.NodeReport], *, elapsed_s: float) -> str:
    """One line of what the nodes have done."""
    total = list(reports.values())
    pages = sum(report.pages for report in total)
    rate = pages / elapsed_s if elapsed_s > 0 else 0.0
    return (
        f"pages {pages:,}  pending {sum(report.pending for report in total):,}  "
        f"later {sum(report.later for report in total):,}  sites {sum(report.sites for report in total):,}  "
        f"nodes {len(total)}  {rate:,.0f} pages/s"
    )


class Ticker:
    """Progress on stderr: a line that overwrites itself on a terminal, a plain one now and then elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last_s = time.monotonic()

    def show(self, line: str) -> None:
        now_s = time.monotonic()
        if self._live:
            width = shutil.get_terminal_size().columns - 1  # a line that wraps cannot overwrite itself
            print(f"\r\x1b[K{line[:width]}", end="", file=sys.stderr, flush=True)
        elif now_s - self._last_s >= PLAIN_LINE_S:
            self._last_s = now_s
            print(line, file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """A line that stays."""
        print(f"\r\x1b[K{line}" if self._live else line, file=sys.stderr, flush=True)


class Interrupts:
    """SIGINT and SIGTERM counted: the first drains, a second stops at once."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._add)

    def _add(self) -> None:
        self.count += 1
        self._changed.set()

    async def wait(self, timeout_s: float) -> None:
        """Return at the next one, or after the time."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
