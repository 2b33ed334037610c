"""What the nodes of one cluster tell each other through the store: hints, reports, scopes, pauses, the handoff log.

It knows no site's keys: only those that are the cluster's own, and how commands travel.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from shared import durability, errors, keys, packing, records, scope, stores

REPORT_S = 60  # a report is written every second; one this old is of a node that is gone
HANDOFFS_MAX = 1_000_000
SCOPES_PER_TRIP = 64  # batches of seeds' rules: each may hold a thousand
PAUSE_VERSION = "#"  # among the names of paused sites, which it cannot be: it counts what was said of them
CALLS_PER_TRIP = 256  # commands sent before their answers are read: bounds the memory of both ends
SEALED_PER_TRIP = 1_024  # strict: each trip waits for a disk, so there are fewer of them
INBOX_MAX = 100_000  # hints beyond it are dropped: owners read their arcs again
INBOX_S = 3_600  # the same for the inbox of a node that never comes back

Command = durability.Command
T = TypeVar("T")


class Board:
    """The store of one cluster, for what is no site's."""

    def __init__(self, store: stores.Store, cluster: str, *, call_s: float, strict: bool) -> None:
        self.cluster = cluster
        self._store = store
        self._call_s = call_s
        self._strict = strict
        self._keys = keys.RedisKeys(cluster)
        self._report = msgspec.json.Decoder(records.NodeReport)
        self._handoff = msgspec.json.Decoder(records.Handoff)

    async def ping(self) -> int:
        """The store's TIME in milliseconds; a cluster's is that of the first of its masters, and all must answer."""
        ((seconds, microseconds),) = (await self._store.everywhere(("TIME",)))[0]
        return int(seconds) * 1000 + int(microseconds) // 1000

    # --- nodes ----------------------------------------------------------------------------------------------

    async def inbox(self, node: str, *, at_most: int) -> list[str]:
        """The oldest hints in a node's inbox: sites that went from idle to pending. They stay until `empty_inbox`."""
        (sites,) = await self._trip([("LRANGE", self._keys.inbox(node), 0, at_most - 1)])
        # One name for each hint, whatever it is: they are removed by their number.
        return [site.decode(errors="replace") for site in sites]

    async def empty_inbox(self, node: str, count: int) -> None:
        """Remove the oldest hints, once they have been followed."""
        await self._trip([("LTRIM", self._keys.inbox(node), count, -1)])

    async def wake(self, node: str, sites: Sequence[str]) -> None:
        """Leave a hint for the owner of these sites."""
        if sites:
            await self._trip(self._hint(node, sites))

    async def report(self, report: records.NodeReport) -> None:
        await self._trip([("SET", self._keys.report(report.id), records.encode_json(report), "EX", REPORT_S)])

    async def reports(self, nodes: Sequence[str]) -> dict[str, records.NodeReport]:
        """The reports there are; a node that has been silent for a minute has none."""
        answers = await self._trip([("GET", self._keys.report(node)) for node in nodes])
        return {
            node: self._report.decode(answer) for node, answer in zip(nodes, answers, strict=True) if answer is not None
        }

    # --- scopes and pauses ----------------------------------------------------------------------------------

    async def scope_version(self) -> int:
        """How many batches of seeds' rules there are; they are never taken away."""
        (count,) = await self._trip([("HLEN", self._keys.scopes())])
        return int(count)

    async def scopes(self, *, known: Collection[bytes] = ()) -> dict[bytes, tuple[scope.SeedRule, ...] | None]:
        """Every batch of rules by its name, as they were written; None for those that are known already."""
        (names,) = await self._trip([("HKEYS", self._keys.scopes())])
        found: dict[bytes, tuple[scope.SeedRule, ...] | None] = dict.fromkeys(names)
        for part in chunks([name for name in names if name not in known], SCOPES_PER_TRIP):
            (batches,) = await self._trip([("HMGET", self._keys.scopes(), *part)])
            found |= {name: packing.seed_rules(one) for name, one in zip(part, batches, strict=True)}
        return found

    async def add_scopes(self, rules: Sequence[scope.SeedRule]) -> int:
        """Write one batch of rules, named by what is in it, so that a repeat adds none; the version it makes."""
        batch = packing.packed_rules(rules)
        name = hashlib.sha256(batch).digest()[:16]
        key = self._keys.scopes()
        _, count = await self._send([("HSET", key, name, batch), ("HLEN", key)], lasting=True)
        return int(count)

    async def pauses(self, *, newer_than: int | None = None) -> records.Pauses | None:
        """What is paused; None if that is what it was at this version."""
        key = self._keys.paused()
        (version,) = await self._trip([("HGET", key, PAUSE_VERSION)])  # before the names: they are then no older
        if newer_than is not None and int(version or 0) == newer_than:
            return None
        (names,) = await self._trip([("HKEYS", key)])
        return records.Pauses(
            version=int(version or 0), sites=frozenset(packing.names(names)) - frozenset((PAUSE_VERSION,))
        )

    async def pause(self, sites: Sequence[str]) -> int:
        """Start nothing new on these sites, `*` for all; the version that says so."""
        now_ms = await self.ping()
        key = self._keys.paused()
        told = [part for site in sites for part in (site, now_ms)]
        answers = await self._send([("HSET", key, *told), ("HINCRBY", key, PAUSE_VERSION, 1)], lasting=True)
        return int(answers[-1])

    async def resume(self, sites: Sequence[str]) -> int:
        """Undo `pause` for these names; sites that are paused by name stay so when `*` goes."""
        key = self._keys.paused()
        answers = await self._send([("HDEL", key, *sites), ("HINCRBY", key, PAUSE_VERSION, 1)], lasting=True)
        return int(answers[-1])

    # --- handoff log ----------------------------------------------------------------------------------------

    async def append_handoffs(self, entries: Sequence[records.Handoff]) -> None:
        """Append in order; the oldest entries go when there are about a million."""
        key = self._keys.handoffs()
        await self._trip(
            [("XADD", key, "MAXLEN", "~", HANDOFFS_MAX, "*", "line", records.encode_json(one)) for one in entries]
        )

    async def read_handoffs(
        self, after: str = "-", *, at_most: int, block_ms: int | None = None
    ) -> list[tuple[str, records.Handoff]]:
        """(id, entry) of the entries after the one of that id, oldest first; `-` is before the first.

        Waits `block_ms` for the first of them, or half a call's time if that is shorter.
        """
        wait = () if block_ms is None else ("BLOCK", max(1, min(block_ms, int(self._call_s * 500))))
        start = "0" if after == "-" else after
        (streams,) = await self._trip([("XREAD", "COUNT", at_most, *wait, "STREAMS", self._keys.handoffs(), start)])
        entries = streams[0][1] if streams else []
        return [(name.decode(), self._handoff.decode(fields[b"line"])) for name, fields in entries]

    # --- the wire -------------------------------------------------------------------------------------------

    def _hint(self, node: str, sites: Sequence[str]) -> list[Command]:
        key = self._keys.inbox(node)
        return [("RPUSH", key, *sites), ("LTRIM", key, -INBOX_MAX, -1), ("EXPIRE", key, INBOX_S)]

    async def _trip(self, commands: Sequence[Command]) -> list[Any]:
        """Of keys that are no site's: what is wrong with them is wrong with the store."""
        try:
            return await self._send(commands, lasting=False)
        except errors.DamagedSite as error:
            raise errors.StoreUnavailable(f"a key of the cluster is not crawlring's: {error}") from error

    async def _send(self, commands: Sequence[Command], *, lasting: bool, before: Sequence[Command] = ()) -> list[Any]:
        """Send all, then read all answers: a round trip for each part, and a disk's one wait where they must last."""
        if len(commands) == 1 and not before:  # most: one script a visit
            return stores.checked(await self._store.send(commands, sealed=lasting))
        answers: list[Any] = []
        for part in chunks(commands, SEALED_PER_TRIP if lasting and self._strict else CALLS_PER_TRIP):
            said = stores.checked(await self._store.send([*before, *part], sealed=lasting))
            answers.extend(said[len(before) :])
        return answers


def chunks(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (whole[at : at + size] for at in range(0, len(whole), size))
