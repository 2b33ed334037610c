"""What `crawlring up` listens on: loopback alone, whatever process of it listens."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coordinator import nodes

START_S = 30.0
LISTEN = "0A"  # the kernel's number for that state
LOOPBACK = ("0100007F:", "00000000000000000000000001000000:", "0000000000000000FFFF00000100007F:")


@pytest.mark.cluster
def test_up_listens_on_loopback_alone(tmp_path: Path) -> None:
    line = [sys.executable, "-P", "-m", "coordinator.cli", "up", f"--data={tmp_path / 'data'}", "--nodes=2"]
    line += ["--user-agent=Test/1.0 (+https://localhost/listening)"]
    log = tmp_path / "up.log"
    with log.open("wb") as out:
        up = subprocess.Popen(line, env=nodes.packages(), stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_S
        while len(found := _listening(up.pid)) < 5:  # etcd twice, Valkey, two nodes
            assert up.poll() is None, log.read_text()
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(START_S)
    assert all(address.startswith(LOOPBACK) for address in found), found


def _listening(parent: int) -> set[str]:
    """The TCP addresses, in the kernel's own writing, on which a process and its descendants listen."""
    sockets = {name for pid in _family(parent) for name in _open(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{parent}/net/{table}").read_text().splitlines()[1:]:
            columns = row.split()
            if columns[3] == LISTEN and f"socket:[{columns[9]}]" in sockets:
                found.add(columns[1])
    return found


def _family(parent: int) -> set[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {parent}
    while more := {pid for pid, above in parents.items() if above in found} - found:
        found |= more
    return found


def _open(pid: int) -> set[str]:
    names = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            names.add(str(link.readlink()))
    return names
