"""Redis or Valkey servers behind one question: commands in, answers out, and whether they last.

It knows no frontier: only URLs, connections, the library's errors, and one server as a store. A Redis Cluster as a
store is `slots`. Nothing here repeats by itself. Only these two and `lists` import redis.
"""

import asyncio
import itertools
import math
import ssl
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import hiredis
import redis.asyncio
from redis import exceptions
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared import config, durability, errors

CONNECTIONS_MAX = 32  # to one server: one call holds one connection; more callers than this wait their turn
SEALED_CONNECTIONS_MAX = 512  # strict: a call holds its connection until a disk has its writes
CLUSTERED = {"redis-cluster": "redis", "rediss-cluster": "rediss"}
COMMANDS_PER_TRIP = 256  # of several callers: bounds the memory of both ends, and the wait of the first
PORT = 6379
OF_THE_POOL = ("max_connections", "timeout")  # options that are no connection's
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

# What a store says when it is there but cannot serve: the caller waits, as for one that does not answer.
NOT_NOW = (
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
)

# Of a script, but not of its site: its user may not run one of its commands; or somebody has killed it.
FORBIDDEN_INSIDE = ("ACL failure in script", "The user executing the script can't run", "NOPERM")
KILLED_INSIDE = "Script killed by user"
NOT_HERE = "ttempted to access a non local key"  # a script, in a slot that is being moved: see site.lua

Command = durability.Command


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where one server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Place:
    """What a store's URL says."""

    url: str
    """Without its secrets."""
    clustered: bool
    addresses: tuple[Address, ...]
    """Of a cluster; a single server's is among its options, and may be the path of a socket."""
    options: dict[str, Any] = field(repr=False)
    call_s: float


class Store(Protocol):
    """One server, or a cluster of them."""

    async def send(self, commands: Sequence[Command], *, sealed: bool = False) -> list[Any]:
        """The answer to each, in their order; what a server complains about stands among them.

        Commands of one key are done in their order. `sealed`: whatever was done lasts, if `seal` was asked for.
        Raises StoreUnavailable when one of them was not answered or not confirmed; it may have run all the same.
        """
        ...

    async def load(self, script: str, at: Sequence[str]) -> None:
        """Load a script where these keys are; everywhere if there are none."""
        ...

    async def everywhere(self, *commands: Command) -> list[list[Any]]:
        """The answers of each server that takes writes, in a lasting order."""
        ...

    async def seal(self) -> None:
        """From now on what is `sealed` lasts. Raises ConfigError for a store that cannot promise it."""
        ...

    def addresses(self) -> Sequence[Address]:
        """Servers of it that the URL may not name, as far as they are known by now."""
        ...

    async def close(self) -> None: ...


def place(url: str, *, call_s: float, strict: bool) -> Place:
    """What a URL says. Raises ConfigError, without the URL's secrets, for one of no store."""
    shown = config.without_password(url)
    ours = {
        "max_connections": SEALED_CONNECTIONS_MAX if strict else CONNECTIONS_MAX,
        "timeout": call_s,
        "socket_timeout": call_s,
        "socket_connect_timeout": call_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,  # under RESP3, redis 8.1.0 does not notice a connection that the server closed
    }
    scheme = url.partition("://")[0]
    try:
        addresses, options = _cluster(url) if scheme in CLUSTERED else _single(url)
    except ValueError as error:
        # Of the library's texts, those about a port quote what may be part of a password.
        schemes = ", ".join(f"{one}://" for one in ("redis", "rediss", "unix", *CLUSTERED))
        said = str(error) if str(error).startswith("Invalid value for '") else f"not a store's: those begin {schemes}"
        raise errors.ConfigError(f"redis URL {shown}: {said}") from None
    if addresses and options.pop("db", 0):
        raise errors.ConfigError(f"redis URL {shown}: a cluster has database 0 only")
    for name in FILES:
        if name in options and not Path(str(options[name])).is_file():
            raise errors.ConfigError(f"redis URL {shown}: {name}: there is no file {options[name]}")
    try:
        kind: Any = options.get("connection_class", redis.asyncio.Connection)
        kind(**{name: value for name, value in options.items() if name not in ("connection_class", *OF_THE_POOL)})
    except TypeError as error:
        unknown = str(error).rpartition("argument ")[2]
        raise errors.ConfigError(f"redis URL {shown}: an option that does not exist: {unknown}") from None
    return Place(shown, clustered=bool(addresses), addresses=addresses, options=ours | options, call_s=call_s)


def _single(url: str) -> tuple[tuple[Address, ...], dict[str, Any]]:
    return (), dict(parse_url(url))


def _cluster(url: str) -> tuple[tuple[Address, ...], dict[str, Any]]:
    scheme, _, rest = url.partition("://")
    # What is between // and the path: the user, then the hosts; in a password, @ and / are written %40 and %2F.
    end = min((at for at in map(rest.find, "/?") if at >= 0), default=len(rest))
    user, at, hosts = rest[:end].rpartition("@")
    options = dict(parse_url(f"{CLUSTERED[scheme]}://{user}{at}localhost{rest[end:]}"))
    del options["host"]
    return tuple(_address(one) for one in hosts.split(",")), options


def _address(text: str) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return Address(parts.hostname, parts.port or PORT)


@dataclass(slots=True, eq=False)
class _Call:
    """Commands that one caller waits for."""

    packed: bytes
    names: list[str]
    answers: asyncio.Future[list[Any]]


class Server:
    """The connections to one server.

    Calls that come while a round trip is on its way share the next one, on one connection: a command costs its packing
    and no more. What waits (a blocking read, a confirmation) has a connection of its own.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._call_s = options["socket_timeout"]
        self._pool = redis.asyncio.BlockingConnectionPool(**options)
        self._readers = redis.asyncio.Redis.from_pool(self._pool).response_callbacks
        self._waiting: deque[_Call] = deque()
        self._carrier: asyncio.Task[None] | None = None
        self._calls = 0
        self._closed = False

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        """One round trip; what the server complains about stands among the answers."""
        call = self._call(commands)
        if len(commands) == 1 and commands[0][0] == "XREAD" and "BLOCK" in commands[0]:
            return await self._alone(call)
        self._calls += 1
        try:
            self._waiting.append(call)
            if self._carrier is None:
                self._calls += 1  # a trip outlives callers that give up: its connection is closed after it
                self._carrier = asyncio.create_task(self._carry())
            with translated():
                return self._read(call.names, await call.answers)
        finally:
            self._calls -= 1
            await self._close_when_idle()

    async def sealed(self, commands: Sequence[Command], witness: durability.Witness) -> list[Any]:
        """The same, confirmed. All on one connection: it does not outlive a crash of the server, so that the
        confirmation is of the server that took the writes. The last answer is of the mark.
        """
        *said, confirmed = await self._alone(self._call([*commands, *witness.seal()]))
        if not isinstance(said[-1], Exception):
            witness.question.check(confirmed)
        return said

    async def close(self) -> None:
        """Close its connections, once the calls that run have ended: a caller that waits for one would open another."""
        self._closed = True
        await self._close_when_idle()

    def _call(self, commands: Sequence[Command]) -> _Call:
        packed = b"".join([hiredis.pack_command(command) for command in commands])
        return _Call(packed, [str(command[0]) for command in commands], asyncio.get_running_loop().create_future())

    async def _alone(self, call: _Call) -> list[Any]:
        self._calls += 1
        try:
            with translated():
                return self._read(call.names, await self._round_trip([call]))
        finally:
            self._calls -= 1
            await self._close_when_idle()

    async def _carry(self) -> None:
        """Round trips, one after the other, until nobody waits; a caller that has given up disturbs no other."""
        trip: list[_Call] = []
        try:
            while self._waiting:
                trip = self._next_trip()
                try:
                    answers = iter(await self._round_trip(trip) if trip else ())
                except (exceptions.RedisError, OSError) as error:
                    # A server that does not answer has had its time: whoever waits behind has waited as long.
                    lost = [*trip, *self._waiting] if isinstance(error, exceptions.TimeoutError) else trip
                    for call in lost:
                        if not call.answers.done():
                            call.answers.set_exception(error)
                    continue
                for call in trip:
                    said = list(itertools.islice(answers, len(call.names)))
                    if not call.answers.done():
                        call.answers.set_result(said)
        finally:
            self._carrier = None
            self._calls -= 1
            for call in (*trip, *self._waiting):
                call.answers.cancel()  # nobody is left waiting, but where the loop itself ends
            await self._close_when_idle()

    def _next_trip(self) -> list[_Call]:
        trip: list[_Call] = []
        room = COMMANDS_PER_TRIP
        while self._waiting and (not trip or len(self._waiting[0].names) <= room):
            call = self._waiting.popleft()
            if not call.answers.done():
                trip.append(call)
                room -= len(call.names)
        return trip

    async def _round_trip(self, calls: Sequence[_Call]) -> list[Any]:
        """The answers as they came, of all calls in a row."""
        answers: list[Any] = []
        loop = asyncio.get_running_loop()
        connection: Any = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.send_packed_command([call.packed for call in calls], check_health=False)
            # One timer for all reads, set on with each: the library's own would be one for each.
            async with asyncio.timeout(self._call_s) as limit:
                for _ in range(sum(len(call.names) for call in calls)):
                    try:
                        answers.append(await connection.read_response(timeout=math.inf))
                    except exceptions.ResponseError as error:
                        answers.append(error)
                    limit.reschedule(loop.time() + self._call_s)
        except TimeoutError as error:
            raise exceptions.TimeoutError("no answer in time") from error
        finally:
            await self._pool.release(connection)
        return answers

    def _read(self, names: Sequence[str], answers: Sequence[Any]) -> list[Any]:
        """The answers in the library's form, which some commands have."""
        readers = self._readers
        return [
            readers[name](answer) if name in readers and not isinstance(answer, Exception) else answer
            for name, answer in zip(names, answers, strict=True)
        ]

    async def _close_when_idle(self) -> None:
        if self._closed and not self._calls:
            await self._pool.aclose()


class Single:
    """One server as a store."""

    def __init__(self, where: Place, *, mark: str) -> None:
        self._server = Server(where.options)
        self._call_s = where.call_s
        self._mark = mark
        self._witness: durability.Witness | None = None

    async def send(self, commands: Sequence[Command], *, sealed: bool = False) -> list[Any]:
        if not sealed or self._witness is None:
            return await self._server.pipe(commands)
        *said, marked = await self._server.sealed(commands, self._witness)
        checked([*said, marked])
        return said

    async def load(self, script: str, at: Sequence[str]) -> None:
        del at
        checked(await self._server.pipe([("SCRIPT", "LOAD", script)]))

    async def everywhere(self, *commands: Command) -> list[list[Any]]:
        return [checked(await self._server.pipe(commands))]

    async def seal(self) -> None:
        """Its disk, or a replica where its disk cannot be asked for."""
        question = durability.disk(call_s=self._call_s)
        why = await no_word_of_disk(self._server, question.command)
        if why is not None:
            if not await replicas_of(self._server):
                raise durability.refused(*why)
            question = durability.replicas(call_s=self._call_s)
        self._witness = durability.Witness(self._mark, question)

    def addresses(self) -> Sequence[Address]:
        return ()

    async def close(self) -> None:
        await self._server.close()


async def no_word_of_disk(server: Server, question: Command) -> tuple[str, str] | None:
    """Why it cannot say when a write is on its disk, and what helps; None: it can."""
    said, policy = await server.pipe([question, ("CONFIG", "GET", "appendfsync")])
    if isinstance(said, exceptions.NoPermissionError):
        checked([said])
    if isinstance(said, exceptions.ResponseError):
        if "unknown command" in str(said).lower():
            return "it cannot say when a write is on its disk", durability.REPLICA_ADVICE
        return str(said), durability.DISK_ADVICE
    if isinstance(policy, Exception):
        return "its user may not see whether `appendfsync` is `always`", durability.POLICY_ADVICE
    if policy != [b"appendfsync", b"always"]:
        return f"with `appendfsync {policy[1].decode()}` it answers before its disk has it", durability.ALWAYS_ADVICE
    return None


async def replicas_of(server: Server) -> int:
    (info,) = checked(await server.pipe([("INFO", "replication")]))
    return int(info["connected_slaves"])


def missing_script(answer: Any) -> bool:
    return isinstance(answer, exceptions.NoScriptError)


def damaged(answer: Any) -> bool:
    """A script met a key or a value that is not ours: a matter of its site, not of the store."""
    if not isinstance(answer, exceptions.ResponseError) or _not_now(answer) or _forbidden(answer):
        return False
    return "@user_script" in str(answer)


def checked(answers: list[Any]) -> list[Any]:
    """The answers, if none of them is an error; what a script says of itself or of its site passes for none."""
    for answer in answers:
        if isinstance(answer, Exception) and not missing_script(answer) and not damaged(answer):
            with translated():
                raise answer
    return answers


@contextmanager
def translated() -> Iterator[None]:
    """The library's errors in our words; a complaint about what we sent is a bug and stays as it is."""
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError) as error:
        raise errors.StoreForbidden(f"redis: the user of the URL is refused: {error}") from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
        if _about_certificates(error):
            raise errors.StoreForbidden(f"redis: no TLS with it (ssl_... options of the URL): {error}") from error
        raise errors.StoreUnavailable(f"redis: {error}") from error
    except exceptions.InvalidResponse as error:
        raise errors.StoreUnavailable(f"redis: what answers there is no Redis: {error}") from error
    except exceptions.ResponseError as error:
        if _forbidden(error):
            raise errors.StoreForbidden(f"redis: the user of the URL lacks a right: {error}") from error
        if _not_now(error):
            raise errors.StoreUnavailable(f"redis: {error}") from error
        if str(error).startswith("WRONGTYPE"):
            raise errors.DamagedSite(f"redis: {error}") from error
        raise


def _not_now(error: exceptions.ResponseError) -> bool:
    known = exceptions.ReadOnlyError | exceptions.OutOfMemoryError | exceptions.ClusterError | exceptions.AskError
    moved = exceptions.NoPermissionError  # an AuthorizationError in other words: not about a site either
    text = str(error)
    return isinstance(error, known | moved) or text.startswith(NOT_NOW) or NOT_HERE in text or KILLED_INSIDE in text


def _forbidden(error: exceptions.ResponseError) -> bool:
    return any(words in str(error) for words in FORBIDDEN_INSIDE)


def _about_certificates(error: BaseException | None) -> bool:
    """Does TLS itself refuse, so that waiting will not help? An end of the connection is none of that."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
        error = error.__cause__ or error.__context__
    return False
