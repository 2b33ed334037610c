"""`crawlring audit`: the nodes' crawl logs and the handoff log, spooled by site and judged by `shared.audit`.

It holds one part of the sites in memory at a time (about PART_BYTES of log); the lines of one site are never
parted. A line that cannot be read is counted and left out.
"""

import argparse
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

import msgspec

from coordinator import cli
from shared import audit, config, errors, records

PART_BYTES = 32 * 1024 * 1024  # about 100 MB once decoded
PARTS_MAX = 200  # two open files each; a log beyond PARTS_MAX * PART_BYTES is judged in larger parts
LINE_BYTES_MAX = 1024 * 1024  # no crawl line is longer; a file without line ends must not fill the memory
HANDOFFS_AT_A_TIME = 1_000
UNREADABLE = (ValueError, RecursionError)  # no JSON, no UTF-8, no such record, nested without end
SHOWN_MAX = 20  # violations printed for a reader; --json has all that are kept

Line = TypeVar("Line", bound=records.Record)

EPILOG = """examples:
  crawlring audit out                                   every crawl-*.jsonl in out, handoffs from the store
  crawlring audit host1/out host2/out --handoffs handoffs.jsonl --json
  crawlring handoffs --json > handoffs.jsonl            how that file is made
  crawlring audit out --handoffs /dev/null              the crawl logs alone, with no store at hand

exit status: 0 nothing is broken, 1 a promise is broken, 2 nothing to read, 3 the store cannot be reached"""


class Report(audit.Findings, frozen=True, kw_only=True):
    """What `audit --json` prints."""

    files: int = 0
    bad_lines: int = 0
    """Lines that could not be read: an unfinished last line of a node that was killed, as a rule."""


class Head(msgspec.Struct, frozen=True):
    """As much of a crawl line as sorting it away needs."""

    site: str
    node: str
    clock_error_ms: int


class Spool:
    """Lines of both logs in temporary files, parted by site. A context manager: the files go with it."""

    def __init__(self, parts: int) -> None:
        self.errors_ms: dict[str, int] = {}
        self.lines = self.bad_lines = 0
        self._parts = parts
        self._open: dict[str, BinaryIO] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="crawlring-audit-")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for file in self._open.values():
            file.close()
        self._folder.cleanup()

    def add_log(self, path: Path) -> None:
        """Sort one crawl log away."""
        decode = msgspec.json.Decoder(Head).decode
        with path.open("rb") as log:
            while raw := log.readline(LINE_BYTES_MAX):
                try:
                    head = decode(raw)
                except UNREADABLE:
                    self.bad_lines += 1 if raw.strip() else 0
                    continue
                self.lines += 1
                worst_ms = max(self.errors_ms.get(head.node, 0), abs(head.clock_error_ms))
                self.errors_ms[head.node] = worst_ms
                self._part("crawl", head.site).write(raw.rstrip(b"\n") + b"\n")

    def add_handoffs(self, entries: Iterable[records.Handoff | None]) -> None:
        """Sort handoff lines away; None is a line that could not be read."""
        for entry in entries:
            if entry is None:
                self.bad_lines += 1
            elif entry.site is not None:
                self._part("handoffs", entry.site).write(records.encode_json(entry) + b"\n")

    def judge(self) -> audit.Findings:
        """Judge part after part."""
        total = audit.Findings()
        for part in range(self._parts):
            lines = self._read(f"crawl-{part}", records.CrawlLine)
            handoffs = self._read(f"handoffs-{part}", records.Handoff)
            total = audit.added(total, audit.examine(lines, handoffs, clock_errors_ms=self.errors_ms))
        return total

    def _part(self, kind: str, site: str) -> BinaryIO:
        name = f"{kind}-{zlib.crc32(site.encode()) % self._parts}"
        if name not in self._open:
            self._open[name] = (Path(self._folder.name) / name).open("w+b")
        return self._open[name]

    def _read(self, name: str, kind: type[Line]) -> Iterator[Line]:
        file = self._open.get(name)
        if file is None:
            return
        decode = msgspec.json.Decoder(kind).decode
        file.seek(0)
        for raw in file:
            try:
                yield decode(raw)
            except UNREADABLE:
                self.bad_lines += 1


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = cli.add_command(
        commands, "audit", summary="recompute the promises P1, P3 and P4 from the logs", epilog=EPILOG
    )
    parser.add_argument("out", nargs="+", metavar="OUT", type=Path, help="a node's --out folder, or one crawl log")
    parser.add_argument("--handoffs", metavar="FILE", type=Path, help="the handoff log; default: read from the store")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Audit and print; 0 only without violations."""
    logs = crawl_logs(args.out)
    report = judge(logs, _handoffs(args))
    if args.json:
        cli.print_json(report)
    else:
        print("\n".join(told(report)))
    if report.bad_lines:
        print(f"crawlring: {report.bad_lines} lines could not be read and were left out", file=sys.stderr)
    return cli.NO if report.violations_total else cli.DONE


def judge(logs: Sequence[Path], entries: Iterable[records.Handoff | None]) -> Report:
    """Judge crawl logs and handoffs; ConfigError where the logs hold no request at all."""
    size_bytes = sum(log.stat().st_size for log in logs)
    with Spool(min(PARTS_MAX, 1 + size_bytes // PART_BYTES)) as spool:
        for log in logs:
            spool.add_log(log)
        spool.add_handoffs(entries)
        findings = spool.judge()
        if not findings.requests:
            raise errors.ConfigError(f"nothing to audit: no request in {len(logs)} crawl logs")
        return Report(**msgspec.structs.asdict(findings), files=len(logs), bad_lines=spool.bad_lines)


def crawl_logs(outs: Iterable[Path]) -> list[Path]:
    """The crawl logs in folders, or the files themselves, each once; ConfigError where there is none."""
    found: dict[Path, None] = {}
    for out in outs:
        logs = sorted(out.glob("crawl-*.jsonl")) if out.is_dir() else [out]
        if not logs or not all(log.is_file() for log in logs):
            raise errors.ConfigError(f"no crawl-*.jsonl in {out}" if out.is_dir() else f"no such log: {out}")
        found |= {log.resolve(): None for log in logs}
    return list(found)


async def stored_handoffs(settings: config.Config) -> list[records.Handoff]:
    """The `moved` and `first_fetch` lines of the store's handoff log, which is capped."""
    from shared import frontier  # noqa: PLC0415 - a store's client is not needed for --help

    store = await frontier.Frontier.open(settings.redis, settings.cluster)
    try:
        entries: list[records.Handoff] = []
        after = "-"
        while page := await store.read_handoffs(after, at_most=HANDOFFS_AT_A_TIME):
            entries += [entry for _, entry in page if entry.site is not None]
            after = page[-1][0]
        return entries
    finally:
        await store.close()


def told(report: Report) -> list[str]:
    """The report for a reader."""
    broken = Counter(violation.promise for violation in report.violations)
    smallest = report.smallest_gap_ratio
    lines = [
        f"{report.requests} requests to {report.sites} sites in {report.files} logs, {report.handoffs} moves",
        f"P1 gap      {_verdict(broken['P1'])}: {report.gaps} gaps judged"
        + (f", the smallest {smallest:.3f} of what was required" if smallest is not None else "")
        + (f"; {report.unjudged} within the clock errors, not judged" if report.unjudged else ""),
        f"P3 repeats  {_verdict(broken['P3'])}: {report.repeats} pages asked for again before their commit",
        f"P4 fencing  {_verdict(broken['P4'])}",
    ]
    for one in report.violations[:SHOWN_MAX]:
        gap = "" if one.gap_ms is None else f", {one.gap_ms} ms of {one.delay_ms} ms"
        after = "" if one.previous_node is None else f" after {one.previous_node}"
        lines.append(f"  {one.promise} {one.reason} {one.site} by {one.node}{after} at {one.start_ms}{gap}")
    if report.violations_total > SHOWN_MAX:
        lines.append(f"  and {report.violations_total - SHOWN_MAX} more")
    return lines


def _verdict(broken: int) -> str:
    return "BROKEN" if broken else "kept"


def _handoffs(args: argparse.Namespace) -> Iterable[records.Handoff | None]:
    from shared import handoffs  # noqa: PLC0415 - not needed for --help

    if args.handoffs is None:
        return cli.awaited(stored_handoffs(cli.settings(args)))
    if not args.handoffs.exists():
        raise errors.ConfigError(f"no such handoff log: {args.handoffs}")
    return handoffs.read_file(args.handoffs)
