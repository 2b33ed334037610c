"""What is read of running processes and of this machine: CPU and memory from /proc, a store's own counts, the versions.

Source: proc(5), Redis' INFO.
"""

import contextlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from coordinator import local

TICKS_S = os.sysconf("SC_CLK_TCK")
CLIENT_CORE, SERVER_CORE = 0, 1


@dataclass(frozen=True, slots=True)
class Process:
    """One process and its children at one moment."""

    wall_s: float
    cpu_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Store:
    """A store's counts since it started."""

    cpu_s: float
    commands: int
    trips: int
    """Reads of a socket: one for each bundle of commands that a client sent together."""


def process(pid: int) -> Process:
    """Of the process with its children that live; a process that has gone reads as nothing."""
    pids = [pid, *_children(pid)]
    return Process(time.monotonic(), sum(map(_cpu_s, pids)), sum(map(_rss_bytes, pids)))


def store(port: int, pid: int) -> Store:
    """What a Redis on loopback says, and its process's CPU."""
    with socket.create_connection((local.LOOPBACK, port), timeout=5) as connection:
        connection.sendall(b"INFO stats\r\nQUIT\r\n")
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    counts = dict(re.findall(r"(\w+):(\d+)\r", answer.decode()))
    return Store(_cpu_s(pid), int(counts["total_commands_processed"]), int(counts["total_reads_processed"]))


def pinned(core: int) -> list[str]:
    """In front of a command: keep it on this core. Nothing where there is only one, or no taskset."""
    taskset = shutil.which("taskset")
    return [taskset, "-c", str(core)] if taskset and (os.cpu_count() or 1) > 1 else []


def pin_self(core: int) -> None:
    """Keep this process, and what it starts unless told otherwise, on this core."""
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {core})


def machine() -> dict[str, str]:
    """What a figure has to be read with."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    optimised = "optimised" if "--enable-optimizations" in arguments else "not optimised (no PGO)"
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}, {optimised}",
        "etcd": _said([local.find_etcd(), "--version"]),
        "store": _said([local.find_valkey(), "--version"]),
        "nginx": _said(["nginx", "-v"]),
    }


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                found += [child, *_children(child)]
    return found


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _cpu_model() -> str:
    found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def _said(command: list[str]) -> str:
    """The first line that a program says of its version."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except OSError:
        return "none"
    return (done.stdout + done.stderr).strip().partition("\n")[0]
