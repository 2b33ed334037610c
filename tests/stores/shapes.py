"""Offers, commits and waits in the shape that most tests here want."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from shared import frontier, records, ring

SITE = "example.com"


def url(number: int, site: str = SITE) -> str:
    return f"https://www.{site}/page/{number}"


def offer(number: int, site: str = SITE, *, priority: int = 5, again: bool = False) -> records.Offer:
    score = ring.score_of("xxh3-64", site)
    return records.Offer(url=url(number, site), site=site, score=score, priority=priority, again=again)


def nobody(_site: str) -> str | None:
    return None


async def offered(
    desk: frontier.Frontier,
    *offers: records.Offer,
    owner_of: Callable[[str], str | None] = nobody,
    pages_max: int = 1_000_000,
) -> list[str]:
    return await desk.offer(offers, owner_of=owner_of, pages_max=pages_max)


PLAIN = records.Commit(due_in_s=2.0, due_term="minimum", delay_s=2.0, delay_term="minimum")


def done(*visited: records.QueuedUrl, **changes: object) -> records.Commit:
    """A commit of these URLs at the plain pace."""
    return msgspec.structs.replace(PLAIN, done=visited, **{"visits": len(visited), **changes})


async def claimed(
    desk: frontier.Frontier, node: str = "n1", epoch: int = 1, site: str = SITE, *, delay_s: float = 2.0
) -> records.SiteRecord:
    (record,) = await desk.claim([site], node, epoch, delay_s=delay_s)
    assert record is not None, "a newer tenure holds the site"
    return record


def heads(record: records.SiteRecord) -> list[str]:
    return [queued.url for queued in record.head]


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = 5.0) -> None:
    """Wait for the condition, or fail."""
    deadline = time.monotonic() + within_s
    while not await condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)
