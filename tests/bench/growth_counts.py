"""What etcd, a store and a process say of their own work: counters read before and after a span of time."""

import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import redis

CLUSTER = "growth"
TICKS = os.sysconf("SC_CLK_TCK")
PAUSE_S = 5.0


def etcd_counts(address: str) -> dict[str, float]:
    """Calls answered by kind, bytes each way, and watch events sent, since etcd's start."""
    found: dict[str, float] = {}
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PAUSE_S) as answer:
        text = answer.read().decode()
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("grpc_server_handled_total{") and float(value):
            method = name.partition('grpc_method="')[2].partition('"')[0]
            found[method] = found.get(method, 0.0) + float(value)
        elif name.startswith("grpc_server_msg_received_total{") and "LeaseKeepAlive" in name:
            found["keepalive"] = float(value)
        elif name == "etcd_debugging_mvcc_events_total":
            found["watch events"] = float(value)
        elif name.startswith("etcd_network_client_grpc_sent_bytes_total"):
            found["bytes sent"] = float(value)
        elif name.startswith("etcd_network_client_grpc_received_bytes_total"):
            found["bytes received"] = float(value)
        elif name == "etcd_disk_wal_write_bytes_total":
            found["wal bytes"] = float(value)
    return found


def store_counts(url: str) -> dict[str, float]:
    """Commands by name (those that scripts send included), CPU seconds, reads of sockets, since the store's start."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        stats = client.info("commandstats")
        found = {name.removeprefix("cmdstat_"): float(each["calls"]) for name, each in stats.items()}
        found.pop("info", None)
        cpu, about = client.info("cpu"), client.info("stats")
    found["all"] = sum(found.values())
    found["scripts"] = found.get("evalsha", 0.0) + found.get("evalsha_ro", 0.0)
    found["cpu s"] = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
    found["reads"] = float(about.get("total_reads_processed", 0))
    return found


def cpu_s(pid: int) -> float:
    """User and system seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS


def child_of(pid: int) -> int:
    """The process that a wrapper started; the process itself where it started none."""
    tasks = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(tasks[0]) if tasks else pid


def rates(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Per second, for what moved."""
    return {
        name: (value - before.get(name, 0.0)) / seconds
        for name, value in after.items()
        if value != before.get(name, 0.0)
    }
