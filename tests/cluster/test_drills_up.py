"""The drills on a whole `crawlring up`: each breaks what it says, heals it, and its report agrees with the web's log."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coordinator import cli, local, nodes, origin_log, small_web
from tests.cluster import harness

pytestmark = pytest.mark.cluster

DELAY_S = 0.3
SITES = 24
QUICK = {**harness.QUICK, "CRAWLRING_MEMBERSHIP__REJOIN_S": "1"}  # a lost lease is back soon
DRILL_S = 90.0
SLACK_S = 6.0  # of a takeover, for a busy machine: P5 itself is judged by the report, and measured in tests/bench


def wait(condition: Callable[[], object], *, within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.05)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@dataclass
class Up:
    """A running `crawlring up --drills` of three nodes."""

    folder: Path
    process: subprocess.Popen[bytes]

    def said(self) -> str:
        return (self.folder / "up.err").read_text()

    def pid(self, node: str) -> int:
        found = re.search(rf"^node {node} (\d+)$", (self.folder / "up.out").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def command(self, *arguments: str) -> list[str]:
        line = [sys.executable, "-P", "-m", "coordinator.cli", "drill", *arguments]
        return [*line, f"--data={self.folder / 'data'}", "--json"]

    def drill(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            self.command(*arguments),
            env=nodes.packages(),
            capture_output=True,
            text=True,
            timeout=DRILL_S,
            check=False,
        )
        assert done.returncode in {cli.DONE, cli.NO}, done.stdout + done.stderr + self.said()
        report: dict[str, Any] = json.loads(done.stdout)
        assert (done.returncode == cli.DONE) == report["kept"], report
        print(f"{arguments}: {done.stdout}")
        return report


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    graph = small_web.build(5, sites=SITES, largest=400)
    (tmp_path / "seeds").write_text("\n".join(graph.seeds()))
    port = local.free_port()
    web = [sys.executable, "-P", "-m", "coordinator.web_demo", "--port", str(port), "--sites", str(SITES)]
    web += ["--seed", "5", "--largest", "400", "--log", str(tmp_path / "web.jsonl")]
    command = [sys.executable, "-P", "-m", "coordinator.cli", "up", f"--data={tmp_path / 'data'}", "--nodes=3"]
    command += ["--drills", f"--seeds={tmp_path / 'seeds'}", f"--delay={DELAY_S}", "--lease-ttl=3"]
    command += [f"--connect-to=127.0.0.1:{port}", "--user-agent=Test/1.0 (+https://localhost/)"]
    with contextlib.ExitStack() as closing:
        origins = local.Child(web, log=tmp_path / "web.log", environ=nodes.packages())
        closing.callback(origins.kill)
        wait(lambda: "web" in (tmp_path / "web.log").read_text())
        out = closing.enter_context((tmp_path / "up.out").open("wb"))
        err = closing.enter_context((tmp_path / "up.err").open("wb"))
        process = subprocess.Popen(command, env=nodes.packages() | QUICK, stdout=out, stderr=err)
        closing.callback(process.wait)
        closing.callback(process.kill)
        started = Up(tmp_path, process)
        wait(lambda: re.search(r"pages [1-9]", started.said()), within_s=60)
        yield started


def origins_agree(folder: Path) -> None:
    """By the web's own log no gap was too short, whatever was broken (P1)."""
    ledger = origin_log.Ledger(small_web.build(5, sites=SITES, largest=400), minimum_s=DELAY_S)
    for raw in (folder / "web.jsonl").read_bytes().splitlines(keepends=True):
        if raw.endswith(b"\n"):
            ledger.add(raw)
    assert ledger.requests > 500
    assert not ledger.short, ledger.short[:3]
    assert not ledger.trespasses()


def held(report: dict[str, Any]) -> None:
    assert all(one["holds"] for one in report["promises"] if one["promise"] != "P5"), report
    assert report["lost"] == 0
    assert report["requests"] > 0
    assert report["smallest_gap_ratio"] >= 1


def taken_over(report: dict[str, Any]) -> None:
    held(report)
    assert report["moved"] >= report["sites_owned"] > 0, report
    times = report["takeover"]
    assert 0 < times["first_s"] <= times["median_s"] <= times["last_s"], report
    assert times["slowest_s"] <= times["slowest_bound_s"] + SLACK_S, report
    assert report["kept"] == (times["slowest_s"] <= times["slowest_bound_s"]), report


def test_each_drill_breaks_what_it_says_and_every_promise_is_kept(up: Up, tmp_path: Path):
    killed_lease = up.drill("kill-lease", "--seconds=3")
    taken_over(killed_lease)
    assert killed_lease["back"] > 0

    cut = up.drill("partition", "--node=n2", "--from=both")
    taken_over(cut)
    assert (cut["node"], cut["stores"], cut["back"] > 0) == ("n2", ["redis", "etcd"], True)
    assert cut["takeover"]["first_s"] > 2, "it had authority until its lease ran out"

    stores = up.drill("restart-store", "--seconds=2")
    held(stores)
    assert (stores["node"], stores["moved"], stores["healed_ms"] - stores["began_ms"] >= 4_000) == (None, 0, True)
    assert stores["resumed_s"] is not None
    assert up.said().count("was started again") == 2

    killed = up.drill("kill", "--node=n3")
    taken_over(killed)
    assert (killed["back"], killed["healed_ms"]) == (0, None)
    assert f"node n3 {up.pid('n3')} was killed by SIGKILL" in up.said()

    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0, up.said()
    origins_agree(tmp_path)


def test_an_interrupted_or_killed_drill_is_healed_and_a_frozen_node_moves_its_sites(up: Up):
    pid = up.pid("n1")
    for number, status in ((signal.SIGINT, cli.INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)):
        drill = subprocess.Popen(
            up.command("freeze", "--node=n1", "--seconds=60"),
            env=nodes.packages(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with drill:
            wait(lambda: state(pid) == "T")
            os.kill(drill.pid, number)
            assert drill.wait(30) == status
            wait(lambda: state(pid) != "T")
    frozen = up.drill("freeze", "--node=n1")
    taken_over(frozen)
    assert (frozen["node"], state(pid) != "T", frozen["resumed_s"] is not None) == ("n1", True, True)
