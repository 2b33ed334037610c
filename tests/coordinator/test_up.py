"""`crawlring up` refuses what cannot work, says what it starts, reports what dies, and leaves nothing running."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator import cli, local, small_web

ROOT = Path(__file__).parents[2]
AGENT = "--user-agent=Test/1.0 (+https://localhost/)"


def wait(condition: Callable[[], object], *, within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Up:
    """A running `crawlring up`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.out, self.err = folder / "up.out", folder / "up.err"
        command = [sys.executable, "-m", "coordinator.cli", "up", f"--data={folder / 'data'}", *options]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err)

    def nodes(self) -> dict[str, int]:
        return {name: int(pid) for name, pid in re.findall(r"^node (\S+) (\d+)$", self.out.read_text(), re.MULTILINE)}

    def end(self, within_s: float = 60) -> int:
        return self.process.wait(within_s)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Up]:
    up = Up(folder, *options)
    try:
        yield up
    finally:
        up.process.kill()
        up.process.wait()


@contextmanager
def web(folder: Path, *, sites: int) -> Iterator[str]:
    """HOST:PORT of a small web; its log is web.jsonl."""
    port = local.free_port()
    command = [sys.executable, "-m", "coordinator.web_demo", "--port", str(port), "--sites", str(sites)]
    command += ["--seed", "5", "--largest", "4", "--log", str(folder / "web.jsonl")]
    child = local.Child(command, log=folder / "web.log", environ={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        wait(lambda: "web" in (folder / "web.log").read_text())
        yield f"127.0.0.1:{port}"
    finally:
        child.kill()


def test_without_a_user_agent_nothing_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["up", f"--data={tmp_path / 'data'}"]) == cli.USAGE
    assert "user agent is required" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_seeds_that_cannot_be_read_are_told_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["up", f"--data={tmp_path / 'data'}", AGENT, f"--seeds={tmp_path / 'none'}"]) == cli.USAGE
    assert "cannot read the seeds" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_data_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with local.lock(tmp_path):
        assert cli.main(["up", f"--data={tmp_path}", AGENT]) == cli.USAGE
    assert "in use by process" in capsys.readouterr().err


@pytest.mark.parametrize("nodes", ["0", "65", "many"])
def test_a_number_of_nodes_that_cannot_be_is_wrong_usage(nodes: str):
    assert cli.main(["up", AGENT, f"--nodes={nodes}"]) == cli.USAGE


@pytest.mark.cluster
def test_it_crawls_until_idle_and_the_same_data_resumes(tmp_path: Path):
    graph = small_web.build(5, sites=6, largest=4)
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("\n".join(["not a url", *graph.seeds()]))
    with web(tmp_path, sites=6) as address:
        options = [AGENT, "--until-idle", f"--seeds={seeds}", f"--connect-to={address}", "--delay=0.2", "--nodes=2"]
        with running(tmp_path, *options) as up:
            assert up.end() == 0, up.err.read_text()
            said = up.out.read_text()
            assert re.fullmatch(r"etcd \S+:\d+\nredis redis://\S+\nnode n1 \d+\nnode n2 \d+\n", said), said
            assert not any(alive(pid) for pid in up.nodes().values())
            assert f"{len(graph.seeds())} accepted, 0 known, 1 refused" in up.err.read_text()
        asked = (tmp_path / "web.jsonl").read_text()
        kinds = graph.expected()
        fetched = {url for url, kind in kinds.items() if kind is small_web.Kind.PAGE}
        assert all(f'"{url}"' in asked for url in fetched)
        with running(tmp_path, *options) as up:
            assert up.end() == 0, up.err.read_text()
            assert f"0 accepted, {len(graph.seeds())} known, 1 refused" in up.err.read_text()


@pytest.mark.cluster
def test_the_first_interrupt_drains_and_a_dead_node_is_reported(tmp_path: Path):
    with running(tmp_path, AGENT, "--nodes=2") as up:
        wait(lambda: len(up.nodes()) == 2)
        victim = up.nodes()["n2"]
        wait(lambda: b"tether" not in Path(f"/proc/{victim}/cmdline").read_bytes())
        os.kill(victim, signal.SIGKILL)
        wait(lambda: f"node n2 {victim} was killed by SIGKILL" in up.err.read_text())
        started = children(up.process.pid)
        assert len(started) >= 3
        up.process.send_signal(signal.SIGINT)
        assert up.end() == 0, up.err.read_text()
        assert "draining" in up.err.read_text()
        assert not any(alive(pid) for pid in started)


@pytest.mark.cluster
def test_a_second_interrupt_stops_at_once(tmp_path: Path):
    with running(tmp_path, AGENT, "--nodes=1") as up:
        wait(up.nodes)
        (pid,) = up.nodes().values()
        wait(lambda: b"tether" not in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(pid, signal.SIGSTOP)  # it will not drain
        up.process.send_signal(signal.SIGTERM)
        wait(lambda: "draining" in up.err.read_text())
        up.process.send_signal(signal.SIGTERM)
        assert up.end(30) == cli.INTERRUPTED
        assert not alive(pid)


@pytest.mark.cluster
def test_a_killed_up_leaves_nothing_behind(tmp_path: Path):
    with running(tmp_path, AGENT, "--nodes=1") as up:
        wait(up.nodes)
        started = children(up.process.pid)
        up.process.kill()
        wait(lambda: not any(alive(pid) for pid in started))
