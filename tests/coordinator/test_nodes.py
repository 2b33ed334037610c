"""A crew's processes are told what they need, reported once when they end, and leave nothing running."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator import local, nodes

SLEEPER = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(60)"


def wait(condition: Callable[[], object], *, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.02)


@pytest.fixture
def crew(tmp_path: Path):
    """Two processes that behave like nodes: they run until SIGTERM."""
    made = nodes.Crew(nodes.Place("h:1", "redis://h:2/0", "c", tmp_path / "out", tmp_path))
    for node in ("n1", "n2"):
        made._children[node] = local.Child([sys.executable, "-c", SLEEPER], log=made.log(node))
        wait(lambda: "up" in made.log(node).read_text())  # noqa: B023 - called before the next turn
    yield made
    made.kill()


def test_a_node_is_told_where_its_cluster_is_and_what_was_asked(tmp_path: Path):
    where = ("h:1", "redis://:secret@h:2/0", "c", tmp_path, tmp_path)
    place = nodes.Place(*where, arguments=("--delay=1",), environ={"X": "1"})
    command = nodes.node_command(place, "n7")
    assert command[1:5] == ["-P", "-m", "coordinator.cli", "node"]
    assert command[5:] == [
        "--delay=1",
        "--id=n7",
        "--etcd=h:1",
        "--cluster=c",
        f"--out={tmp_path}",
    ]
    environ = nodes.node_environ(place)
    assert (environ["X"], environ["CRAWLRING_REDIS"]) == ("1", "redis://:secret@h:2/0")
    assert "secret" not in " ".join(command)
    assert environ["PYTHONPATH"].split(":")[0] == str(Path(nodes.__file__).parents[1])


def test_a_node_that_died_is_told_once(crew: nodes.Crew):
    assert crew.ended() == []
    crew._children["n1"].signal(signal.SIGKILL)
    wait(lambda: crew.alive() == ["n2"])
    (end,) = crew.ended()
    assert (end.node, end.status, end.how) == ("n1", -9, "was killed by SIGKILL")
    assert crew.ended() == []


def test_a_drain_ends_all_by_themselves(crew: nodes.Crew):
    crew.drain()
    wait(lambda: not crew.alive())
    assert {end.how for end in crew.ended()} == {"ended with status 0"}


def test_a_kill_leaves_nothing(crew: nodes.Crew):
    crew._children["n1"].signal(signal.SIGSTOP)
    crew.kill()
    assert crew.alive() == []
