"""What one look and one confirm cost etcd, by how many members there are: measured on a filled etcd, a few at a time.

Used by `tests.bench.growth --costs`: member keys, beats and a view as that many nodes would have written them, then
looks, then confirms, from threads of one process, and etcd's CPU time around each.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared import agreement, config, etcd, keys, membership, records
from tests.bench import growth_counts

THREADS = 4
SPAN_S = 4.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of etcd's CPU, and bytes to etcd's log, for one call."""

    members: int
    look_ms: float
    look_kib: float
    confirm_ms: float
    confirm_log_kib: float
    keepalive_ms: float


def costs(address: str, pid: int, sizes: Sequence[int]) -> list[Cost]:
    """One line a size, in growing order; the etcd must be empty."""
    settings = config.load(environ={}, options={"etcd": address, "cluster": growth_counts.CLUSTER})
    prints = membership.fingerprint(settings, sites_digest="growth")
    store = etcd.Etcd(address, call_s=10.0)
    names = keys.EtcdKeys(growth_counts.CLUSTER)
    store.found(names, prints)
    value = records.MemberValue(weight=1.0, address="http://192.0.2.1:8080", fingerprint=prints)
    mine: list[agreement.Mine] = []
    found = []
    try:
        for size in sizes:
            for number in range(len(mine), size):
                lease, _ = store.grant(600)
                _, incarnation, _ = store.join(names, f"node-{number:04}", value, lease)
                mine.append(agreement.Mine(f"node-{number:04}", incarnation, lease))
            found.append(_cost(store, names, mine, pid, address))
    finally:
        store.close()
    return found


def _cost(store: etcd.Etcd, names: keys.EtcdKeys, mine: Sequence[agreement.Mine], pid: int, address: str) -> Cost:
    seen = store.look(names)
    members = {each.node: records.Member(each.incarnation, 1.0, "http://192.0.2.1:8080") for each in mine}
    elders = tuple((each.node, each.incarnation) for each in mine)
    assert seen.view is not None
    view = records.View(
        members=members,
        fingerprint=seen.view.fingerprint,
        previous=agreement.revision_of(seen.epoch),
        elders=elders,
    )
    first = agreement.Mine(mine[0].node, mine[0].incarnation, mine[0].lease, seen.view_bytes)
    done, _, _ = store.propose(names, first, agreement.Propose(view, seen.epoch, seen.revision))
    assert done
    now = store.look(names)
    all_ours = [agreement.Mine(each.node, each.incarnation, each.lease, now.view_bytes) for each in mine]
    call = agreement.Confirm(now.epoch, now.epoch)
    for each in all_ours:
        assert store.confirm(names, each, call)[0]
    look_ms, look_kib, _ = _spent(lambda _: store.look(names), pid, address)
    confirm_ms, _, log_kib = _spent(lambda at: store.confirm(names, all_ours[at % len(all_ours)], call), pid, address)
    keepalive_ms, _, _ = _spent(lambda at: store.keepalive(mine[at % len(mine)].lease), pid, address)
    return Cost(len(mine), look_ms, look_kib, confirm_ms, log_kib, keepalive_ms)


def _spent(call: Callable[[int], object], pid: int, address: str) -> tuple[float, float, float]:
    """(ms of CPU, KiB answered, KiB logged) a call, from a few threads at once."""
    done = [0] * THREADS
    until_s = time.monotonic() + SPAN_S

    def work(number: int) -> None:
        while time.monotonic() < until_s:
            call(number + done[number] * THREADS)
            done[number] += 1

    before, cpu_s = growth_counts.etcd_counts(address), growth_counts.cpu_s(pid)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent_s = growth_counts.cpu_s(pid) - cpu_s
    each = growth_counts.rates(before, growth_counts.etcd_counts(address), sum(done))
    return spent_s * 1000 / sum(done), each.get("bytes sent", 0.0) / 1024, each.get("wal bytes", 0.0) / 1024
