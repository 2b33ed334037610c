"""What one operation costs, as measured, and from that where a growing cluster stops and which part stops it.

Pure. Every number may be replaced (`--costs FILE`, JSON of the same names). Sources: `python -m tests.bench.growth
--costs` and `--nodes 1,2,4,8`, and for what a page of a busy node costs `make bench`, on 2 shared cores (etcd 3.5.1,
Valkey 9.1, Python 3.11).
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from shared import errors


class Costs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CPU in milliseconds of one core unless the name says otherwise."""

    etcd_look_ms: float = 0.2
    etcd_look_ms_per_member: float = 0.0032
    etcd_confirm_ms: float = 0.25
    etcd_confirm_ms_per_member: float = 0.0011
    """The view is compared whole in each confirm, and stands in etcd's log with it."""
    etcd_keepalive_ms: float = 0.35
    etcd_log_bytes_per_byte: float = 2.0
    """Bytes logged for a byte of a confirm's request."""
    etcd_cores: float = 1.0
    """What etcd may use; its reads run side by side, its log does not."""
    etcd_network_mib_s: float = 119.0
    """1 Gbit/s."""
    etcd_log_mib_s: float = 100.0
    """What a disk takes while it syncs a thousand times a second."""
    store_commands_per_fetch: float = 40.0
    store_ms_per_fetch: float = 0.25
    store_commands_per_node_s: float = 12.0
    """Inbox, report, what the operator says: asked whatever is fetched."""
    store_command_ms: float = 0.02
    store_ms_per_claim: float = 0.1
    store_shards: int = 1
    """Masters of a Redis Cluster, each on a core of its own."""
    claims_per_s: float = 4_000.0
    """Of one node."""
    node_ms_per_fetch: float = 0.9
    node_cores: float = 1.0
    """One process, one core."""
    fetch_s: float = 0.3
    """One request, from its start to its end."""
    dns_ttl_s: float = 300.0
    """Of a typical answer; assumed, not measured."""
    dns_per_s: float = 10_000.0
    """What the resolver answers; assumed, not measured."""


def read(raw: bytes) -> Costs:
    """Raises ConfigError for what is not a table of these names and numbers."""
    try:
        costs = msgspec.json.decode(raw, type=Costs)
    except msgspec.MsgspecError as error:
        raise errors.ConfigError(f"--costs: {error}") from error
    wrong = [name for name in costs.__struct_fields__ if not 0 <= getattr(costs, name) < math.inf]
    if wrong:
        raise errors.ConfigError(f"--costs: {wrong[0]} must be a number of 0 or more")
    return costs


class Use(NamedTuple):
    """One part of the cluster at one size."""

    part: str
    used: float
    """Of what it can do, 1.0 is full."""


def etcd_cores(costs: Costs, members: float, calls: Mapping[str, float]) -> float:
    """Cores (or core-seconds) of etcd that these calls take, a second's (or an event's) worth."""
    look_ms = costs.etcd_look_ms + costs.etcd_look_ms_per_member * members
    confirm_ms = costs.etcd_confirm_ms + costs.etcd_confirm_ms_per_member * members
    writes = ("confirm", "propose", "join", "leave", "weigh", "resign")
    return (
        calls.get("look", 0.0) * look_ms
        + sum(calls.get(name, 0.0) for name in writes) * confirm_ms
        + calls.get("keepalive", 0.0) * costs.etcd_keepalive_ms
    ) / 1000


def uses(
    costs: Costs, *, members: int, quiet: Mapping[str, float], join: Mapping[str, float], join_s: float,
    store_ms_per_s: float, dns_per_s: float,
) -> list[Use]:  # fmt: skip
    """How full each part is with so many members that fetch so many pages a second."""
    mib = 1024 * 1024
    return [
        Use("etcd CPU", etcd_cores(costs, members, quiet) / costs.etcd_cores),
        Use("etcd network", quiet.get("look bytes", 0.0) / mib / costs.etcd_network_mib_s),
        Use(
            "etcd log",
            quiet.get("confirm bytes", 0.0) * costs.etcd_log_bytes_per_byte / mib / costs.etcd_log_mib_s,
        ),
        # What a join asks for is to be answered while it lasts, on top of what is asked anyway.
        Use(
            "etcd CPU in a join",
            (etcd_cores(costs, members, join) / join_s + etcd_cores(costs, members, quiet)) / costs.etcd_cores
            if join_s
            else 0.0,
        ),
        Use("store CPU", store_ms_per_s / 1000 / costs.store_shards),
        Use("DNS", dns_per_s / costs.dns_per_s),
    ]


def full_at(sizes: Iterable[tuple[int, float]]) -> float | None:
    """The number of nodes at which a part is full, by a power law between sizes; None: not by the largest."""
    before: tuple[int, float] | None = None
    for nodes, used in sizes:
        if used >= 1:
            if before is None or before[1] <= 0 or used <= before[1]:
                return float(nodes)
            slope = math.log(used / before[1]) / math.log(nodes / before[0])
            return float(before[0] * (1 / before[1]) ** (1 / slope))
        before = nodes, used
    return None
