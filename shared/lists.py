"""One Redis list per worker, filled by a ring that all who fill them agree on.

It knows no URL and no ring: its caller says which worker a URL belongs to. New URLs enter on the left, workers
take from the right, as BRPOP does. What the lists are filled by stands in one key beside them, and every push
compares it in the same step: two that disagree cannot both push. A call that timed out may have run all the
same. Beside `frontier`, which keeps the cluster's own queues, the only importer of redis.
"""

from collections.abc import AsyncIterator, Awaitable, Sequence
from importlib import resources
from typing import Any, Self

import msgspec
import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared import config, errors, records

PAGE = 1_000  # URLs read or moved in one call: some 100 KB, some milliseconds of the store's time
CALL_S = 5.0
SCRIPTS = ("list_agree", "list_push", "list_aside", "list_move")
# What a store says when it is there but cannot serve now: the same as one that does not answer.
NOT_NOW = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.OutOfMemoryError, exceptions.ReadOnlyError)

AGREEMENT = "frontier-ring"


class Agreement(records.Record):
    """What decides which list a URL goes to; one per Redis."""

    workers: tuple[str, ...]
    """In the order given: it settles points of the ring that meet."""
    vnodes: int
    sites: str
    """`Sites.digest`: another suffix list would send a site elsewhere."""
    moving: tuple[str, ...] = ()
    """Workers whose lists are being shared out again; empty when that is done."""


def queue_of(worker: str) -> str:
    """The key that a worker takes its URLs from."""
    return f"frontier:{worker}"


def aside_of(worker: str) -> str:
    """Where a worker's list stands while it is shared out again."""
    return f"frontier-aside:{worker}"


class Lists:
    """A connection to the Redis that holds the lists.

    Every method raises StoreUnavailable, or ConfigError where the Redis refuses.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        folder = resources.files("shared") / "lua"
        self._scripts = {name: client.register_script((folder / f"{name}.lua").read_text()) for name in SCRIPTS}

    @classmethod
    async def open(cls, url: str, *, call_s: float = CALL_S) -> Self:
        """Connect. Raises ConfigError for a URL of no store."""
        try:
            client = redis.asyncio.Redis.from_url(
                url,
                socket_timeout=call_s,
                socket_connect_timeout=call_s,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                decode_responses=True,
                encoding_errors="surrogateescape",  # whatever bytes others pushed come back as they were
            )
        except ValueError as error:
            # Not the library's text: it quotes what may be part of a password.
            raise errors.ConfigError(f"redis URL {config.without_password(url)}: not the URL of a Redis") from error
        lists = cls(client)
        try:
            await lists.ping()
        except errors.CrawlError:
            await lists.close()
            raise
        return lists

    async def ping(self) -> None:
        await _told(self._client.ping())

    async def close(self) -> None:
        await self._client.aclose()

    async def agreement(self) -> Agreement | None:
        """What the lists are filled by; None before the first use."""
        return _read(await _told(self._client.get(AGREEMENT)))

    async def agree(self, wanted: Agreement, *, instead_of: Agreement | None) -> Agreement:
        """Put an agreement in the place of the one that was read; returns the one that stands then."""
        before = _text(instead_of) if instead_of else ""
        stands = _read(await self._run("list_agree", [AGREEMENT], [before, _text(wanted)]))
        return stands or wanted

    async def push(self, agreement: Agreement, urls: Sequence[tuple[str, str]]) -> bool:
        """Push (worker, url) pairs in this order; False, and nothing pushed, if the agreement is another by now."""
        keys = [AGREEMENT, *map(queue_of, agreement.workers)]
        pairs = _numbered(agreement, urls, first=2)
        return bool(await self._run("list_push", keys, [_text(agreement), *pairs]))

    async def put_aside(self, agreement: Agreement, worker: str) -> bool | None:
        """Put a worker's whole list aside; whether there is one aside now, None if the agreement is another."""
        keys = [AGREEMENT, queue_of(worker), aside_of(worker)]
        done = int(await self._run("list_aside", keys, [_text(agreement)]))
        return None if done < 0 else bool(done)

    async def move(self, agreement: Agreement, source: str, urls: Sequence[tuple[str, str]]) -> int | None:
        """Move (worker, url) pairs, as `oldest` read them, from a list aside to where they belong now.

        Returns how many, fewer if somebody else moves them too; None if the agreement is another.
        """
        keys = [AGREEMENT, aside_of(source), *map(queue_of, agreement.workers)]
        pairs = _numbered(agreement, urls, first=3)
        moved = int(await self._run("list_move", keys, [_text(agreement), *pairs]))
        return None if moved < 0 else moved

    async def lengths(self, keys: Sequence[str]) -> list[int]:
        async with self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.llen(key)
            return [int(length) for length in await _told(pipe.execute())]

    async def oldest(self, key: str, *, at_most: int = PAGE) -> list[str]:
        """The oldest URLs of a list, oldest first; they stay."""
        page: list[str] = await _told(self._client.lrange(key, -at_most, -1))
        return page[::-1]

    async def pages(self, key: str, *, at_most: int = PAGE) -> AsyncIterator[list[str]]:
        """The whole list, oldest first, page by page; they stay. A list that changes meanwhile is read roughly."""
        end = -1
        while page := await _told(self._client.lrange(key, end - at_most + 1, end)):
            yield page[::-1]
            end -= at_most

    async def taking(self, key: str, *, at_most: int = PAGE) -> AsyncIterator[list[str]]:
        """The list, oldest first, page by page, until it is empty. A page leaves the list when the next is asked for.

        So whoever stops, fails or dies in the middle of a page loses nothing: it stands there still.
        """
        while page := await self.oldest(key, at_most=at_most):
            yield page
            await self._drop(key, page)

    async def _drop(self, key: str, urls: Sequence[str]) -> None:
        """Remove these from the right end; what somebody else has taken already is passed over."""
        async with self._client.pipeline(transaction=True) as pipe:
            for url in urls:
                pipe.lrem(key, -1, url)
            await _told(pipe.execute())

    async def _run(self, script: str, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        return await _told(self._scripts[script](keys=keys, args=args))


def _text(agreement: Agreement) -> str:
    return msgspec.json.encode(agreement).decode()


def _read(text: str | None) -> Agreement | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Agreement)
    except msgspec.MsgspecError as error:
        raise errors.ConfigError(f"the key {AGREEMENT} holds something else: {error}") from error


def _numbered(agreement: Agreement, urls: Sequence[tuple[str, str]], *, first: int) -> list[str | int]:
    """Pairs as the scripts take them: the number of the worker's key, and the URL."""
    numbers = {worker: number for number, worker in enumerate(agreement.workers, first)}
    return [part for worker, url in urls for part in (numbers[worker], url)]


async def _told(answer: Awaitable[Any]) -> Any:
    """A command's answer, redis' errors translated."""
    try:
        return await answer
    except NOT_NOW as error:
        raise errors.StoreUnavailable(f"redis: {error}") from error
    except exceptions.RedisError as error:
        raise errors.ConfigError(f"redis refuses: {error}") from error
