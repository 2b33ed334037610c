"""A Redis Cluster as one store: which server has which slot, and what is done when that changes.

Each command goes to the master of its key's slot, those of one master in one pipeline on one connection, and all are
answered before the caller is. A script has one key, so a pipeline of scripts crosses no slots. MOVED is followed at
once; anything else that fails is StoreUnavailable, and the next call looks first who is master now. redis-py's own
cluster client is not used: its pipelines refuse EVALSHA, and strict needs a script and its confirmation on one
connection.
"""

import asyncio
import functools
import itertools
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redis import crc, exceptions

from shared import durability, errors, keys, stores

Command = durability.Command

SLOTS = 16_384
TURNS_MAX = 5  # a command that was sent on: once is the rule, twice while the map is being learned
LOOK_S = 0.25  # between two looks at the cluster: one that is failing over is not asked more often
LOOK_WAIT_S = 1.0  # for the first half of its servers to answer
KEEPS_S = 5.0  # after it the map is read again unasked: a master that was replaced may still answer
ASKED_MAX = 16  # servers asked for the map


class Share(NamedTuple):
    """A run of slots and who has it."""

    first: int
    last: int
    master: stores.Address
    replicas: tuple[stores.Address, ...]
    """Those that the cluster takes for alive."""


@dataclass(frozen=True, slots=True)
class Map:
    """One server's account of the cluster."""

    works: bool
    epoch: int
    shares: tuple[Share, ...]

    @property
    def masters(self) -> tuple[stores.Address, ...]:
        """In the order of their slots."""
        return tuple(dict.fromkeys(share.master for share in sorted(self.shares)))


class Clustered:
    """A cluster as a store."""

    def __init__(self, where: stores.Place, names: keys.RedisKeys) -> None:
        self._where = where
        self._names = names
        self._servers: dict[stores.Address, stores.Server] = {}
        self._map = Map(works=False, epoch=0, shares=())
        self._slots: list[stores.Address | None] = [None] * SLOTS
        self._replicas: dict[stores.Address, int] = {}
        self._met: dict[stores.Address, None] = {}
        """Every server that has ever been in the map."""
        self._looking = asyncio.Lock()
        self._stale = True
        self._looked_s = float("-inf")
        self._sealing = False

    # --- the store ------------------------------------------------------------------------------------------

    async def send(self, commands: Sequence[Command], *, sealed: bool = False) -> list[Any]:
        await self._look()
        answers: list[Any] = [None] * len(commands)
        left: Sequence[int] = range(len(commands))
        for _ in range(TURNS_MAX):
            by_server: dict[stores.Address, list[int]] = defaultdict(list)
            for at in left:
                by_server[self._server_of(_key(commands[at]))].append(at)
            parts = [(one, [commands[at] for at in whole]) for one, whole in by_server.items()]
            said = await self._together([self._ask(one, part, sealed=sealed) for one, part in parts])
            for (server, whole), some in zip(by_server.items(), said, strict=True):
                for at, answer in zip(whole, some, strict=True):
                    answers[at] = answer
                    self._learn(server, answer)
            left = [at for at in left if isinstance(answers[at], exceptions.MovedError)]
            if not left:
                return answers
        raise errors.StoreUnavailable("redis: the cluster's slots keep moving")

    async def load(self, script: str, at: Sequence[str]) -> None:
        await self._look()
        servers = dict.fromkeys(map(self._server_of, at)) if at else self._map.masters
        for said in await self._together([self._ask(one, [("SCRIPT", "LOAD", script)]) for one in servers]):
            stores.checked(said)

    async def everywhere(self, *commands: Command) -> list[list[Any]]:
        await self._look()
        said = await self._together([self._ask(one, commands) for one in self._map.masters])
        return [stores.checked(some) for some in said]

    async def seal(self) -> None:
        """What lasts is what the replicas have: one that lagged could become the master.

        All that the cluster takes for alive, because any of them could; one at least, or the first master that dies
        would take with it what was answered. Disks are not asked: their word counts where `appendfsync` is `always`,
        and there no answer comes without them.
        """
        await self._look()
        counts = await self._together([stores.replicas_of(self._at(one)) for one in self._map.masters])
        alone = [str(master) for master, count in zip(self._map.masters, counts, strict=True) if not count]
        if alone and not any(counts):
            raise durability.refused(f"the master {alone[0]} has no replica", "attach one to each master")
        if alone:
            # A fail-over leaves its new master alone for a while; whoever starts just then waits for it to end.
            raise errors.StoreUnavailable(
                f"redis: the master {alone[0]} has no replica now (attach one to each master)"
            )
        self._sealing = True

    def addresses(self) -> Sequence[stores.Address]:
        return tuple(self._met)

    async def close(self) -> None:
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await server.close()

    # --- one server -----------------------------------------------------------------------------------------

    def _at(self, address: stores.Address) -> stores.Server:
        if address not in self._servers:
            options = self._where.options | {"host": address.host, "port": address.port}
            self._servers[address] = stores.Server(options)
        return self._servers[address]

    async def _ask(self, address: stores.Address, commands: Sequence[Command], *, sealed: bool = False) -> list[Any]:
        try:
            if not (sealed and self._sealing):
                return await self._at(address).pipe(commands)
            witness = self._witness(address, _key(commands[-1]))
            *said, marked = await self._at(address).sealed(commands, witness)
        except errors.StoreUnavailable:
            self._stale = True
            raise
        if isinstance(marked, exceptions.MovedError):
            # Nothing of this pipeline was confirmed here: all of it goes where the slots are now, once more.
            self._learn(address, marked)
            return [marked] * len(said)
        stores.checked([marked])
        return said

    def _witness(self, address: stores.Address, key: str) -> durability.Witness:
        """The mark lies in the slot of what was written, so that it is written where that was."""
        if address not in self._replicas:  # met by a MOVED: how many replicas it has, the map must say first
            self._stale = True
            raise errors.StoreUnavailable(f"redis: {address} has only just become a master")
        count = max(1, self._replicas[address])
        question = durability.replicas(call_s=self._where.call_s, count=count)
        return durability.Witness(self._names.mark(_tags()[_slot(key)]), question)

    async def _together(self, asked: Sequence[Any]) -> list[Any]:
        """All at once; every one has ended before any failure is told."""
        if len(asked) == 1:
            return [await asked[0]]
        said = await asyncio.gather(*asked, return_exceptions=True)
        for one in said:
            if isinstance(one, BaseException):
                raise one
        return said

    # --- who has which slot ---------------------------------------------------------------------------------

    def _server_of(self, key: str) -> stores.Address:
        server = self._slots[_slot(key)]
        if server is None:
            self._stale = True
            raise errors.StoreUnavailable("redis: CLUSTERDOWN a slot that no server has")
        return server

    def _learn(self, server: stores.Address, answer: Any) -> None:
        if isinstance(answer, exceptions.MovedError):
            # A server that does not know its own name leaves it out.
            self._slots[answer.slot_id] = stores.Address(answer.host or server.host, answer.port)
        if isinstance(answer, Exception) and not stores.missing_script(answer):
            self._stale = True

    async def _look(self) -> None:
        """Read the map again, if there is reason to."""
        if not self._due():
            return
        async with self._looking:
            if not self._due():
                return
            self._looked_s = time.monotonic()
            found = await self._ask_for_map()
            self._map = found
            self._met |= dict.fromkeys(one for share in found.shares for one in (share.master, *share.replicas))
            slots: list[stores.Address | None] = [None] * SLOTS
            for share in found.shares:
                slots[share.first : share.last + 1] = [share.master] * (share.last + 1 - share.first)
            self._slots = slots
            self._replicas = {share.master: len(share.replicas) for share in found.shares}
            self._stale = False
            await self._let_go()

    def _due(self) -> bool:
        since_s = time.monotonic() - self._looked_s
        return since_s >= KEEPS_S or (self._stale and (since_s >= LOOK_S or not self._map.shares))

    async def _ask_for_map(self) -> Map:
        """The newest account among the first half of the servers that answer."""
        everyone = itertools.chain(
            self._map.masters, *(one.replicas for one in self._map.shares), self._where.addresses
        )
        asked = list(dict.fromkeys(everyone))[:ASKED_MAX]
        asking = [asyncio.create_task(self._account_of(one)) for one in asked]
        found: list[Map] = []
        trouble: errors.CrawlError = errors.StoreUnavailable("redis: no server of the cluster answers in time")
        worst = (errors.ConfigError, errors.StoreForbidden)  # what an operator must see to, if nobody knows better
        try:
            for next_one in asyncio.as_completed(asking, timeout=min(LOOK_WAIT_S, self._where.call_s)):
                try:
                    found.append(await next_one)
                except errors.CrawlError as error:  # one odd server says nothing of the others
                    trouble = trouble if isinstance(trouble, worst) else error
                if len(found) > len(asked) // 2:
                    break
        except TimeoutError:
            pass
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        self._looked_s = time.monotonic()  # whoever waited for this look need not look again
        if not found:
            # A cluster that was one is waited for, whatever answers at its addresses meanwhile.
            if self._map.shares and not isinstance(trouble, errors.StoreUnavailable):
                raise errors.StoreUnavailable(str(trouble)) from trouble
            raise trouble
        return max(found, key=lambda one: (one.works, one.epoch))

    async def _account_of(self, address: stores.Address) -> Map:
        slots, info = await self._at(address).pipe([("CLUSTER", "SLOTS"), ("CLUSTER", "INFO")])
        if isinstance(slots, exceptions.ResponseError) and "cluster support disabled" in str(slots):
            raise errors.ConfigError(f"redis URL {self._where.url}: {address} is no cluster: use redis://")
        try:
            stores.checked([slots, info])
            return read_map(address, slots, info)
        except (exceptions.ResponseError, LookupError, TypeError, ValueError) as error:
            raise errors.StoreUnavailable(f"redis: {address} gives no account of its cluster: {error}") from error

    async def _let_go(self) -> None:
        """Close the connections to servers that left the cluster."""
        here = {
            *self._map.masters,
            *self._where.addresses,
            *itertools.chain(*(one.replicas for one in self._map.shares)),
        }
        for gone in [one for one in self._servers if one not in here]:
            await self._servers.pop(gone).close()


def read_map(asked: stores.Address, slots: Sequence[Any], info: bytes | str) -> Map:
    """What `asked` answered to CLUSTER SLOTS and CLUSTER INFO."""
    text = info.decode() if isinstance(info, bytes) else info
    told = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def address(server: Sequence[Any]) -> stores.Address:
        return stores.Address((server[0] or b"").decode() or asked.host, int(server[1]))

    shares = tuple(
        Share(int(first), int(last), address(master), tuple(map(address, replicas)))
        for first, last, master, *replicas in slots
    )
    return Map(told.get("cluster_state") == "ok", int(told.get("cluster_current_epoch", 0)), shares)


def _key(command: Command) -> str:
    """The key that says where a command goes."""
    if command[0] in {"EVALSHA", "EVALSHA_RO"}:
        return str(command[3])
    if command[0] == "XREAD":
        return str(command[-2])
    return str(command[1])


def _slot(key: str) -> int:
    return crc.key_slot(key.encode())


@functools.cache
def _tags() -> tuple[str, ...]:
    """A hash tag for each slot: the first number that falls into it."""
    found: dict[int, str] = {}
    for number in itertools.count():
        tag = str(number)
        found.setdefault(_slot(tag), tag)
        if len(found) == SLOTS:
            return tuple(found[slot] for slot in range(SLOTS))
    raise AssertionError
